"""From partitions to statements: efficiency, stragglers, waterfall, kinds of kernels, collectives beside a sweep."""

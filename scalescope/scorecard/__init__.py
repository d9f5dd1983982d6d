"""The scorecard: what this machine does, row by row, to be set beside data sheets, the record, and claims."""

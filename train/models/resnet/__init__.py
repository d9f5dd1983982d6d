"""ResNet-50 (He et al. 2015): what it is (config), and its torch half (network, stem)."""

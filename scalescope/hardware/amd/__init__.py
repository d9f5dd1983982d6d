"""What only AMD devices and ROCm have: the kernel driver's topology, visible-devices rules, the host they need."""

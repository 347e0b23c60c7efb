"""What each kind of sub-layer takes: parameters, operations, saved activations, work space."""

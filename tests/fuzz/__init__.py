"""Random streams, faulty inputs and junk options for every metric of the library."""

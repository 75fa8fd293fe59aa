"""Speed and memory against peers, measured by hand with `make bench`: never part of the tests."""

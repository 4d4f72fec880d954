"""Jobs per second, beside other libraries. `make bench`, or `python -m benchmarks --help`."""

"""The crash table: the same kill -9 against every peer and against Treadle. `make crash-table`."""

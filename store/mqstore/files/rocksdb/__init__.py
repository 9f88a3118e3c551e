"""RocksDB databases of a store, read through the package rocksdict."""

"""Wire formats of all other vendors, one file each."""

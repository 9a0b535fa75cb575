"""The exports of each vendor, one file each. Adding a vendor is one file and one row in `known`."""

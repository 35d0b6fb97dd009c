"""How good clusterings are: this library's and its peers', on sets with known classes."""

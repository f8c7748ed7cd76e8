raise OSError("libcudart.so.13: cannot open shared object file\nand more")

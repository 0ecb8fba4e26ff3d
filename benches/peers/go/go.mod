module m0serve/go-hello

go 1.19

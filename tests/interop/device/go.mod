module device

go 1.26

module forebay.local/s3load

go 1.24

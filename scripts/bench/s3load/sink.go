package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
)

// runSink serves until it is killed. Uploads are read to the end and forgotten.
func runSink(arguments []string) (any, error) {
	flags := flag.NewFlagSet("sink", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
	_ = flags.Parse(arguments)
	if flags.NArg() > 0 {
		return nil, errors.New("sink takes no arguments")
	}
	fmt.Fprintln(os.Stderr, "sink listens on", *listen)
	return nil, http.ListenAndServe(*listen, http.HandlerFunc(answerSink))
}

func answerSink(writer http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	received, err := io.Copy(io.Discard, request.Body)
	if err != nil {
		return // The client left; nobody reads an answer.
	}
	header := writer.Header()
	switch {
	case request.Method == http.MethodPost && query.Has("uploads"):
		header.Set("content-type", "application/xml")
		fmt.Fprint(writer, "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key>"+
			"<UploadId>sink</UploadId></InitiateMultipartUploadResult>")
	case request.Method == http.MethodPost:
		header.Set("content-type", "application/xml")
		fmt.Fprint(writer, "<CompleteMultipartUploadResult><Bucket>b</Bucket><Key>k</Key>"+
			"<ETag>\"sink-1\"</ETag></CompleteMultipartUploadResult>")
	case request.Method == http.MethodPut && request.ContentLength >= 0 && received != request.ContentLength:
		writer.WriteHeader(http.StatusBadRequest)
	case request.Method == http.MethodPut:
		header.Set("etag", `"0123456789abcdef0123456789abcdef"`)
	case request.Method == http.MethodDelete:
		writer.WriteHeader(http.StatusNoContent)
	}
}

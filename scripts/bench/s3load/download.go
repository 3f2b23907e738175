package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"
)

type downloaded struct {
	FirstByteSeconds float64 `json:"first_byte_seconds"`
	Seconds          float64 `json:"seconds"`
	Bytes            int64   `json:"bytes"`
	BytesPerS        float64 `json:"bytes_per_second"`
}

// runGet reads one object to its end over a connection that is already open, and keeps nothing.
func runGet(arguments []string) (any, error) {
	flags := flag.NewFlagSet("get", flag.ExitOnError)
	address := flags.String("url", "", "object URL")
	warm := flags.String("warm", "", "URL read once before, to have the connections open")
	_ = flags.Parse(arguments)
	web := client(1)
	if *warm != "" {
		if _, err := fetch(web, *warm); err != nil {
			return nil, err
		}
	}
	return fetch(web, *address)
}

func fetch(web *http.Client, address string) (any, error) {
	request, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	sign(request)
	started := time.Now()
	response, err := web.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", address, response.Status)
	}
	buffer := make([]byte, 256<<10)
	count, err := response.Body.Read(buffer)
	first := time.Since(started).Seconds()
	received := int64(count)
	for err == nil {
		count, err = response.Body.Read(buffer)
		received += int64(count)
	}
	if err != io.EOF {
		return nil, err
	}
	if received != response.ContentLength {
		return nil, fmt.Errorf("%d of %d bytes came", received, response.ContentLength)
	}
	seconds := time.Since(started).Seconds()
	return downloaded{first, seconds, received, float64(received) / seconds}, nil
}

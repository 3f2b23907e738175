// Command s3load makes the loads and the origin that the memory and cold-read figures need:
//
//	s3load sink       an S3 origin that reads every body and keeps nothing
//	s3load puts       many uploads at once, all of them in mid-body at the same moment
//	s3load multipart  one large multipart upload, many parts at once
//	s3load get        one download: time to first byte and throughput
//	s3load head       one request without a body in its answer, over and over
//	s3load relay      passes bytes on: the least that any gateway can cost
//
// Keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Results are one JSON line on stdout.
// Only the standard library, so that `go run` needs no network.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	commands := map[string]func([]string) (any, error){
		"sink":      runSink,
		"puts":      runPuts,
		"multipart": runMultipart,
		"get":       runGet,
		"head":      runHead,
		"relay":     runRelay,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: s3load sink|puts|multipart|get|head|relay [flags]")
		os.Exit(64)
	}
	result, err := commands[os.Args[1]](os.Args[2:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "s3load %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(result)
}

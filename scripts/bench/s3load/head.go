package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"runtime"
	"sort"
	"sync"
	"time"
)

type repeated struct {
	Requests  int     `json:"requests"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

// runHead repeats the request on stdin, whose answer has no body, over kept connections.
//
// wrk cannot: it waits for the body that the length in an answer to HEAD announces.
func runHead(arguments []string) (any, error) {
	flags := flag.NewFlagSet("head", flag.ExitOnError)
	address := flags.String("address", "", "host and port")
	connections := flags.Int("connections", 16, "connections at once")
	period := flags.Duration("period", time.Second, "how long")
	_ = flags.Parse(arguments)
	runtime.GOMAXPROCS(1) // One thread, as wrk -t1: the servers need the rest.
	request, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	var done sync.WaitGroup
	waits := make([][]time.Duration, *connections)
	failures := make([]error, *connections)
	started := time.Now()
	for number := range *connections {
		done.Add(1)
		go func() {
			defer done.Done()
			waits[number], failures[number] = repeat(*address, request, started.Add(*period))
		}()
	}
	done.Wait()
	seconds := time.Since(started).Seconds()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	var all []time.Duration
	for _, some := range waits {
		all = append(all, some...)
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	percentile := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Nanoseconds()) / 1e3
	}
	count := len(all)
	return repeated{count, seconds, float64(count) / seconds, percentile(0.5), percentile(0.99)}, nil
}

// repeat sends the request and reads the head of its answer until `end`.
func repeat(address string, request []byte, end time.Time) ([]time.Duration, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	reader := bufio.NewReader(connection)
	var waits []time.Duration
	for {
		started := time.Now()
		if started.After(end) {
			return waits, nil
		}
		if _, err := connection.Write(request); err != nil {
			return nil, err
		}
		line, err := reader.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return nil, errors.New("answered " + string(line))
		}
		for len(bytes.TrimSpace(line)) > 0 {
			if line, err = reader.ReadSlice('\n'); err != nil {
				return nil, err
			}
		}
		waits = append(waits, time.Since(started))
	}
}

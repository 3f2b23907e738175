package main

import (
	"errors"
	"flag"
	"io"
	"net"
)

// The bytes of one read of a copying relay: those of Forebay's largest.
const relayBufferBytes = 256 << 10

// plainReader hides from io.CopyBuffer that a connection could be spliced.
type plainReader struct{ io.Reader }

type plainWriter struct{ io.Writer }

// runRelay passes connections on to one address until it is killed, and knows nothing of HTTP: what
// any gateway costs at least that receives every byte and sends it. With -splice the bytes stay in
// the kernel, which one that must look at them can't do.
func runRelay(arguments []string) (any, error) {
	flags := flag.NewFlagSet("relay", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
	to := flags.String("to", "", "address to connect to")
	splice := flags.Bool("splice", false, "pass bytes on without copying them")
	_ = flags.Parse(arguments)
	if flags.NArg() > 0 || *to == "" {
		return nil, errors.New("relay needs -to")
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return nil, err
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return nil, err
		}
		go relay(client, *to, *splice)
	}
}

func relay(client net.Conn, to string, splice bool) {
	defer client.Close()
	origin, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	go pass(origin, client, splice)
	pass(client, origin, splice)
}

// pass ends both connections with the first of them.
func pass(into, from net.Conn, splice bool) {
	defer into.Close()
	defer from.Close()
	if splice {
		_, _ = io.Copy(into, from)
		return
	}
	buffer := make([]byte, relayBufferBytes)
	_, _ = io.CopyBuffer(plainWriter{into}, plainReader{from}, buffer)
}

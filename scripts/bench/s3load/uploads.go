package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// client opens as many connections as there are requests at once and keeps them.
func client(connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: connections,
		DisableCompression:  true,
		WriteBufferSize:     128 << 10,
	}}
}

// held is a body of zeros. In its middle it reports and waits, so that all uploads overlap.
type held struct {
	size, sent int64
	reached    *sync.WaitGroup
	release    <-chan struct{}
	pause      time.Duration
}

func (body *held) Read(buffer []byte) (int, error) {
	if body.sent == body.size {
		return 0, io.EOF
	}
	if body.reached != nil && body.sent >= body.size/2 {
		body.reached.Done()
		body.reached = nil
		<-body.release
	}
	time.Sleep(body.pause)
	count := min(int64(len(buffer)), body.size-body.sent)
	clear(buffer[:count])
	body.sent += count
	return int(count), nil
}

func put(web *http.Client, address string, body io.Reader, size int64) (string, error) {
	request, err := http.NewRequest(http.MethodPut, address, io.NopCloser(body))
	if err != nil {
		return "", err
	}
	request.ContentLength = size
	sign(request)
	response, err := web.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, text)
	}
	return response.Header.Get("etag"), nil
}

type uploaded struct {
	Seconds    float64 `json:"seconds"`
	Bytes      int64   `json:"bytes"`
	BytesPerS  float64 `json:"bytes_per_second"`
	Failed     int     `json:"failed"`
	FirstError string  `json:"first_error,omitempty"`
}

func total(started time.Time, size int64, failures []error) uploaded {
	seconds := time.Since(started).Seconds()
	result := uploaded{seconds, size, float64(size) / seconds, len(failures), ""}
	if len(failures) > 0 {
		result.FirstError = failures[0].Error()
	}
	return result
}

// runPuts uploads `count` objects at once; each stops half-way until all have come that far.
func runPuts(arguments []string) (any, error) {
	flags := flag.NewFlagSet("puts", flag.ExitOnError)
	address := flags.String("url", "", "bucket URL")
	count := flags.Int("count", 350, "uploads at once")
	size := flags.Int64("size", 1<<20, "bytes of each")
	rounds := flags.Int("rounds", 4, "times to do it")
	pause := flags.Duration("pause", 0, "wait before each 32 KiB or so: a slow client")
	_ = flags.Parse(arguments)
	web, started := client(*count), time.Now()
	var failures []error
	for range *rounds {
		var reached, done sync.WaitGroup
		var lock sync.Mutex
		release := make(chan struct{})
		reached.Add(*count)
		for number := range *count {
			done.Add(1)
			go func() {
				defer done.Done()
				body := &held{size: *size, reached: &reached, release: release, pause: *pause}
				if _, err := put(web, fmt.Sprintf("%s/k%d", *address, number), body, *size); err != nil {
					lock.Lock()
					failures = append(failures, err)
					lock.Unlock()
				}
				if body.reached != nil { // Failed before its middle: the others must not wait.
					body.reached.Done()
				}
			}()
		}
		reached.Wait()
		close(release)
		done.Wait()
	}
	return total(started, int64(*rounds)*int64(*count)**size, failures), nil
}

func post(web *http.Client, address, body string, answer any) error {
	request, err := http.NewRequest(http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return err
	}
	sign(request)
	response, err := web.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return xml.NewDecoder(response.Body).Decode(answer)
}

// runMultipart uploads one object of zeros in parts.
func runMultipart(arguments []string) (any, error) {
	flags := flag.NewFlagSet("multipart", flag.ExitOnError)
	address := flags.String("url", "", "object URL")
	size := flags.Int64("size", 10<<30, "bytes of the object")
	part := flags.Int64("part", 64<<20, "bytes of a part")
	concurrency := flags.Int("concurrency", 100, "parts at once")
	_ = flags.Parse(arguments)
	web, started := client(*concurrency), time.Now()
	var upload struct {
		UploadID string `xml:"UploadId"`
	}
	if err := post(web, *address+"?uploads=", "", &upload); err != nil {
		return nil, err
	}
	count := int((*size + *part - 1) / *part)
	etags := make([]string, count)
	failures := make([]error, count)
	var done sync.WaitGroup
	slots := make(chan struct{}, *concurrency)
	for number := range count {
		done.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; done.Done() }()
			length := min(*part, *size-int64(number)**part)
			target := fmt.Sprintf("%s?partNumber=%d&uploadId=%s", *address, number+1, escape(upload.UploadID))
			etags[number], failures[number] = put(web, target, &held{size: length}, length)
		}()
	}
	done.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	var list strings.Builder
	for number, etag := range etags {
		fmt.Fprintf(&list, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", number+1, etag)
	}
	body := "<CompleteMultipartUpload>" + list.String() + "</CompleteMultipartUpload>"
	var completed struct{}
	if err := post(web, *address+"?uploadId="+escape(upload.UploadID), body, &completed); err != nil {
		return nil, err
	}
	return total(started, *size, nil), nil
}

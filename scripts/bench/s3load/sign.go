package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"os"
	"sort"
	"strings"
	"time"
)

const region = "us-east-1"

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// sign adds an AWS Signature Version 4 for an unsigned payload, so that no byte is read twice.
func sign(request *http.Request) {
	moment := time.Now().UTC()
	stamp, date := moment.Format("20060102T150405Z"), moment.Format("20060102")
	request.Header.Set("x-amz-date", stamp)
	request.Header.Set("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
	canonical := strings.Join([]string{
		request.Method,
		request.URL.EscapedPath(),
		canonicalQuery(request.URL.Query()),
		"host:" + request.URL.Host + "\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:" + stamp + "\n",
		"host;x-amz-content-sha256;x-amz-date",
		"UNSIGNED-PAYLOAD",
	}, "\n")
	digest := sha256.Sum256([]byte(canonical))
	scope := date + "/" + region + "/s3/aws4_request"
	key := []byte("AWS4" + os.Getenv("AWS_SECRET_ACCESS_KEY"))
	for _, part := range []string{date, region, "s3", "aws4_request"} {
		key = mac(key, part)
	}
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(digest[:])
	request.Header.Set("authorization", "AWS4-HMAC-SHA256 Credential="+
		os.Getenv("AWS_ACCESS_KEY_ID")+"/"+scope+
		", SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature="+
		hex.EncodeToString(mac(key, text)))
}

func canonicalQuery(values url.Values) string {
	var pairs []string
	for name, list := range values {
		for _, value := range list {
			pairs = append(pairs, escape(name)+"="+escape(value))
		}
	}
	sort.Strings(pairs)
	return strings.Join(pairs, "&")
}

func escape(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}

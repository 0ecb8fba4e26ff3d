// The no-Python peer: Go's net/http answering every request with one small body.
// go-hello --bind ADDRESS --body TEXT
package main

import (
	"flag"
	"log"
	"net"
	"net/http"
	"strconv"
)

func main() {
	bind := flag.String("bind", "127.0.0.1:0", "address to listen on")
	text := flag.String("body", "Hello, World!", "what every request is answered with")
	flag.Parse()

	body := []byte(*text)
	length := strconv.Itoa(len(body))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", length)
		w.Write(body)
	})
	listener, err := net.Listen("tcp", *bind)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("go-hello: listening on http://%s", listener.Addr())
	log.Fatal(http.Serve(listener, handler))
}

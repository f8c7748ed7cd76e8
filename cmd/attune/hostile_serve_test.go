//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

const hostileToken = "0123456789abcdef0123456789abcdef"

// exchange sends bytes to a server and returns what it answers until it closes the connection, or
// until the answer has paused.
func exchange(address, request string) (string, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(40 * time.Second)); err != nil {
		return "", err
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(c, request) // the server may close it before the end
	}()
	answer, err := io.ReadAll(io.LimitReader(c, 32<<20))
	c.Close()
	<-sent
	if len(answer) > 0 {
		err = nil // a server that refuses the rest of a request resets the connection
	}
	return string(answer), err
}

// get is a request of one path, with more lines of its header.
func get(path string, header ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n"
}

// post is a request with a body, and with the token.
func post(path, body string, header ...string) string {
	header = append([]string{"Content-Type: application/json", "Authorization: Bearer " + hostileToken, fmt.Sprintf("Content-Length: %d", len(body))}, header...)
	return strings.Replace(get(path, header...), "GET", "POST", 1) + body
}

func requestAttacks() []attack {
	server := func(name string, requests func(a *arena, address string) error) attack {
		return attack{kind: "request", name: name, exit: 0, stage: func(*arena) []string {
			return []string{"serve", "--address", "127.0.0.1:0", "--token", hostileToken}
		}, with: attackOptions{requests: requests}}
	}
	// One request and the status of its answer.
	request := func(name, status, text string) attack {
		return server(name, func(a *arena, address string) error {
			answer, err := exchange(address, strings.ReplaceAll(strings.ReplaceAll(text, "HOST", address), "OUTSIDE", a.outside))
			line, _, _ := strings.Cut(answer, "\r\n")
			switch {
			case err != nil:
				return err
			case !strings.Contains(line, status):
				return fmt.Errorf("the server answers %q, want %q", line, status)
			case strings.Contains(answer, "SECRET_5e1f0a77") || strings.Contains(answer, hostileToken):
				return fmt.Errorf("the server reveals a secret: %.500q", answer)
			case len(answer) > 4<<20:
				return fmt.Errorf("the answer has %d bytes", len(answer))
			}
			return nil
		})
	}
	slow := func(k attack) attack { k.with.slow = true; return k }
	// Many equal requests at the same time.
	flood := func(name string, n int, text string) attack {
		return server(name, func(_ *arena, address string) error {
			errs := make(chan error, n)
			var group sync.WaitGroup
			for range n {
				group.Go(func() {
					answer, err := exchange(address, strings.ReplaceAll(text, "HOST", address))
					if err == nil && answer == "" {
						err = fmt.Errorf("no answer")
					}
					errs <- err
				})
			}
			group.Wait()
			close(errs)
			for err := range errs {
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	longName := "stage2" + strings.Repeat("%2BAAAA=1", 1_700) // 15 KB
	return []attack{
		flood("40 names of variants of 15 KB", 40, get("/kernel?variant="+longName)),
		flood("40 choices of knobs of 15 KB", 40, get("/knobs?stage=stage2&"+strings.Repeat("A=1&", 3_500))),
		slow(flood("100 pages of the kernel", 100, get("/kernel?variant=stage2"))),
		slow(flood("60 reports", 60, get("/ladder"))),
		slow(server("200 connections that send nothing", func(_ *arena, address string) error {
			for range 200 {
				c, err := net.Dial("tcp", address)
				if err != nil {
					return err
				}
				defer c.Close()
			}
			answer, err := exchange(address, strings.ReplaceAll(get("/api/runs"), "HOST", address))
			if err == nil && !strings.Contains(answer, "200 OK") {
				err = fmt.Errorf("the server answers %.100q", answer)
			}
			return err
		})),
		slow(server("a request that comes byte by byte", func(_ *arena, address string) error {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			defer c.Close()
			for range 200 { // it ends the connection after 10 s
				if _, err = io.WriteString(c, "G"); err != nil {
					return nil
				}
				time.Sleep(100 * time.Millisecond)
			}
			return fmt.Errorf("the server waits for a request of one byte in 0.1 s")
		})),
		server("100 streams of events that nobody reads", func(_ *arena, address string) error {
			for range 100 {
				c, err := net.Dial("tcp", address)
				if err != nil {
					return err
				}
				defer c.Close()
				if _, err := io.WriteString(c, strings.ReplaceAll(get("/api/jobs/1/events"), "HOST", address)); err != nil {
					return err
				}
			}
			return nil
		}),
		request("a path that climbs out", "40", get("/assets/..%2f..%2f..%2f..%2fOUTSIDE/secret.txt")),
		request("a path that climbs out of the records", "40", get("/runs/..%2f..%2f..%2foutside%2fsecret.txt")),
		request("a path with a zero byte", "40", get("/assets/style.css%00.png")),
		request("a path of 15 KB", "40", get("/"+strings.Repeat("x", 15_000))),
		request("a header of a megabyte", "431", get("/", "X: "+strings.Repeat("x", 1<<20))),
		request("10,000 headers", "431", get("/", strings.Split(strings.Repeat("X: y\n", 10_000), "\n")[:10_000]...)),
		request("a host of somebody else", "403", strings.Replace(get("/"), "Host: HOST", "Host: evil.example", 1)),
		request("no host", "40", "GET / HTTP/1.0\r\n\r\n"),
		request("two hosts", "400", get("/", "Host: evil.example")),
		request("a request of another site", "403", get("/api/runs", "Origin: http://evil.example")),
		request("a form of another site", "403", strings.Replace(post("/api/runs", "{}"), "Content-Type", "Sec-Fetch-Site: cross-site\r\nContent-Type", 1)),
		request("a run without the token", "401", strings.Replace(post("/api/runs", `{"variants": ["stage2"]}`), hostileToken, "x", 1)),
		request("a run as a form", "41", strings.Replace(post("/api/runs", "variants=stage2"), "application/json", "text/plain", 1)),
		request("a run with a body of a gigabyte", "40", strings.Replace(post("/api/runs", strings.Repeat("x", 1<<20)), "Content-Length: 1048576", "Content-Length: 1073741824", 1)),
		request("a run whose body nests 30,000 lists", "400", post("/api/runs", strings.Repeat("[", 30_000)+strings.Repeat("]", 30_000))),
		request("a run with a length below zero", "400", strings.Replace(post("/api/runs", "{}"), "Content-Length: 2", "Content-Length: -2", 1)),
		request("a run with two lengths", "400", post("/api/runs", "{}", "Content-Length: 5000", "Transfer-Encoding: chunked")),
		request("a run whose variant is an option", "400", post("/api/runs", `{"variants": ["--ledger=/tmp"], "device": "sim"}`)),
		request("a run whose shapes are an option", "400", post("/api/runs", `{"variants": ["stage2"], "device": "sim", "shapes": "--kernel=/tmp"}`)),
		request("a run whose kernel is outside", "400", post("/api/runs", `{"variants": ["stage2"], "kernel": "OUTSIDE"}`)),
		request("a run of 10,000 variants", "400", post("/api/runs", `{"variants": [`+strings.Repeat(`"x",`, 10_000)+`"x"], "device": "sim"}`)),
		request("a run of a shape of an exabyte", "400", post("/api/runs", `{"variants": ["stage2"], "device": "sim", "shapes": "1x1x99999999999x64"}`)),
		request("a job that does not exist", "404", get("/api/jobs/99999999999999999999")),
		request("the removal of a job of somebody else", "40", strings.Replace(get("/api/jobs/1"), "GET", "DELETE", 1)),
		request("a limit below zero", "400", get("/api/runs?limit=-1")),
		request("3,000 parameters", "400", get("/api/runs?"+strings.Repeat("a=1&", 3_000))),
		request("a parameter with escapes", "400", get("/api/runs?verdict=%1b%5d0owned%07")),
		request("a comparison of markup", "40", get("/compare?a=%3Cscript%3E&b=%22%3E%3Cscript%3E")),
		request("an event stream from the end of time", "40", get("/api/tunings/x/events", "Last-Event-ID: 99999999999999999999999")),
		request("an unknown method", "40", strings.Replace(get("/"), "GET", "PROPFIND", 1)),
		request("a proxy request", "40", strings.Replace(get("/"), "GET /", "GET http://evil.example/", 1)),
		request("no HTTP at all", "400", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
	}
}

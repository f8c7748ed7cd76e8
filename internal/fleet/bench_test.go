//go:build !noserver

package fleet

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
)

// remote is a fleet whose server is another process: ATTUNE_FLEET names it (attune serve --fleet).
func remote(b *testing.B) (address string, c *Coordinator) {
	b.Helper()
	address = os.Getenv("ATTUNE_FLEET")
	if address == "" {
		b.Skip("ATTUNE_FLEET names no server; attune serve --fleet 127.0.0.1:4222 starts one")
	}
	conn, err := Connect(address, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	c, err = NewCoordinator(b.Context(), conn, Store{}, nil, func(line string) { b.Log(line) })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return address, c
}

// hire starts workers, each with a connection of its own.
func hire(b *testing.B, c *Coordinator, address string, n int, do Executor) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	for i := range n {
		key, _ := nkeys.CreateUser()
		public, _ := key.PublicKey()
		conn, err := Connect(address, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(conn.Close)
		name := fmt.Sprintf("bench%d", i)
		if err := c.invite(ctx, Invitation{Name: name, Public: public}); err != nil {
			b.Fatal(err)
		}
		w := &Worker{Name: name, Class: "sim", Key: key, Do: do}
		go func() { _ = w.Run(ctx, conn) }()
	}
}

// BenchmarkRemoteJob is the overhead of a job that takes no time.
func BenchmarkRemoteJob(b *testing.B) {
	address, c := remote(b)
	hire(b, c, address, 1, double)
	f := &bench{Coordinator: c, t: b}
	n := int(time.Now().UnixMicro())
	var took []time.Duration
	for b.Loop() {
		n++
		began := time.Now()
		if err := f.do(b.Context(), n); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "ms-p50")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "ms-p99")
}

// BenchmarkThousandWorkers has 1,000 jobs in flight on 1,000 workers that sleep a second each.
func BenchmarkThousandWorkers(b *testing.B) {
	address, c := remote(b)
	const workers = 1000
	hire(b, c, address, workers, func(ctx context.Context, j *Job, o Objects, p func()) (any, error) {
		pause(ctx, time.Second)
		return double(ctx, j, o, p)
	})
	f := &bench{Coordinator: c, t: b}
	first := int(time.Now().UnixMicro())
	for b.Loop() {
		began := time.Now()
		var work sync.WaitGroup
		var mu sync.Mutex
		next := first
		for range workers {
			work.Go(func() {
				for {
					mu.Lock()
					n := next
					next++
					mu.Unlock()
					if n >= first+5*workers {
						return
					}
					if err := f.do(b.Context(), n); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		work.Wait()
		b.ReportMetric(5*workers/time.Since(began).Seconds(), "jobs/s")
		first += 5 * workers
	}
	load, _ := os.ReadFile("/proc/loadavg")
	b.Logf("load %s", strings.TrimSpace(string(load)))
}

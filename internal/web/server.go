package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"attune/internal/document"
	"attune/internal/fleet"
	"attune/internal/ledger"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

//go:embed assets templates
var embedded embed.FS

// Config is what a server shows and what it may do.
type Config struct {
	Ledger     *ledger.Ledger
	LedgerName string // as the user named it
	Version    string

	// Kernel loads the kernel and its folder; a page shows the folder's present state.
	Kernel func() (*spec.Kernel, fs.FS, error)
	// Images looks for builds of the kernel. It may be nil.
	Images func(fs.FS) *toolchain.Builder

	Address string // host and port that the server is bound to
	Host    string // by which the user names it, if that is no address; may be empty
	Token   string // needed to start a run
	Private bool   // the token is needed to read too

	// Fleet reads the state of the fleet whose server this is; nil without one.
	Fleet func(ctx context.Context) (*fleet.Status, error)

	// Commands are what the commands of a report need to work as printed.
	Commands document.Commands
	// Command returns the command line of a run that a page starts, or why there is none.
	Command func(StartRequest) ([]string, error)
	Errors  *log.Logger // of the server itself; may be nil
}

// Server is the dashboard. Close ends its event streams and the run that it has started.
type Server struct {
	config     Config
	hosts      []string
	anyAddress bool
	urls       string // that can be opened, for texts
	records    *records
	jobs       *jobs
	pages      pages
	assets     map[string]asset
	streams    chan struct{} // limits the event streams
	done       chan struct{}
	closing    sync.Once
	handler    http.Handler
}

// maxStreams limits the event streams that are open at the same time.
const maxStreams = 32

// New makes a server. It has not read the ledger yet.
func New(config Config) (*Server, error) {
	s := &Server{
		config: config, records: newRecords(config.Ledger, config.Kernel), streams: make(chan struct{}, maxStreams), done: make(chan struct{}),
	}
	s.jobs = &jobs{command: config.Command}
	s.hosts, s.anyAddress = hostNames(config.Address)
	if config.Host != "" {
		s.hosts = append(s.hosts, strings.ToLower(config.Host))
	}
	s.urls = strings.Join(URLs(config.Address), " or ")
	var err error
	if s.pages, err = parsePages(); err != nil {
		return nil, err
	}
	if s.assets, err = readAssets(); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for pattern, handle := range s.routes() {
		mux.HandleFunc(pattern, s.handled(handle))
	}
	s.handler = s.recovered(s.guard(mux))
	return s, nil
}

// handler answers a request, or returns why it cannot.
type handler func(w http.ResponseWriter, r *http.Request) error

// routes are the pages and the API. What changes something is a POST or DELETE with the token.
func (s *Server) routes() map[string]handler {
	return map[string]handler{
		"GET /{$}":                 s.overview,
		"GET /runs":                s.runList,
		"GET /runs/{id}":           s.wholeID(runFolder, s.runPage),
		"GET /compare":             s.comparePage,
		"GET /benches":             s.benchList,
		"GET /benches/{id}":        s.wholeID(benchFolder, s.benchPage),
		"GET /tunings":             s.tuningList,
		"GET /tunings/{id}":        s.wholeID(tuningFolder, s.tuningPage),
		"GET /runs/{id}/report":    s.wholeID(runFolder, s.runReport),
		"GET /benches/{id}/report": s.wholeID(benchFolder, s.benchReport),
		"GET /tunings/{id}/report": s.wholeID(tuningFolder, s.tuningReport),
		"GET /ladder":              s.ladderReport,
		"GET /kernel":              s.kernelPage,
		"GET /knobs":               s.knobPage,
		"GET /fleet":               s.fleetPage,
		"GET /start":               s.startPage,
		"POST /start":              s.needsToken(s.startForm),
		"POST /token":              s.tokenForm,
		"POST /cancel":             s.needsToken(s.cancelForm),
		"GET /assets/{name}":       s.asset,
		"GET /favicon.ico":         s.icon,
		"GET /api/openapi.json":    s.apiDescription,
		"GET /api/runs":            s.apiRuns,
		"POST /api/runs":           s.needsToken(s.apiStart),
		"GET /api/runs/{id}":       s.apiRun,
		"GET /api/ladder":          s.apiLadder,
		"GET /api/champions":       s.apiChampions,
		"GET /api/compare":         s.apiCompare,
		"GET /api/benches":         s.apiBenches,
		"GET /api/benches/{id}":    s.apiBench,
		"GET /api/tunings/{id}":    s.apiTuning,
		"GET /api/tunings":         s.apiTunings,
		"GET /api/fleet":           s.apiFleet,
		"GET /api/jobs":            s.apiJobs,
		"GET /api/jobs/{number}":   s.apiJob,

		"DELETE /api/jobs/{number}":     s.needsToken(s.apiCancel),
		"GET /api/jobs/{number}/events": s.jobEvents,
		"GET /api/tunings/{id}/events":  s.tuningEvents,
		"/":                             s.unknown,
	}
}

// unknown answers every other path and method.
func (s *Server) unknown(_ http.ResponseWriter, r *http.Request) error {
	return failure(http.StatusNotFound, "there is no %s %s here", clip(r.Method, 20), clip(r.URL.Path, 120))
}

// needsToken refuses requests without the token.
func (s *Server) needsToken(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !s.hasToken(r) {
			return failure(http.StatusUnauthorized, "this needs the token that `attune serve` printed or was given: open /?token=TOKEN, or send it as Authorization: Bearer TOKEN")
		}
		return next(w, r)
	}
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers requests until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: s.config.Errors,
	}
	go func() { _, _ = s.records.now(ctx) }() // so that the first page of a large ledger is quick; it reports errors
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		s.Close()
		return err
	case <-ctx.Done():
	}
	s.Close()
	limit, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(limit); err != nil {
		return server.Close()
	}
	return nil
}

// Close ends the event streams, and the run that the server has started.
func (s *Server) Close() {
	s.closing.Do(func() {
		close(s.done)
		s.jobs.close()
	})
}

// handled turns the error of a handler into a response.
func (s *Server) handled(handle handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := handle(w, r); err != nil {
			s.writeError(w, r, err)
		}
	}
}

// recovered answers a request whose handler has panicked.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if reason := recover(); reason != nil {
				if s.config.Errors != nil {
					s.config.Errors.Printf("%s %s: %v\n%s", r.Method, r.URL.Path, reason, debug.Stack())
				}
				s.writeError(w, r, failure(http.StatusInternalServerError, "the server failed on this request: %v", reason))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// failed is the error of a request, with its status.
type failed struct {
	status int
	name   string // heading of the page
	text   string
}

func (f *failed) Error() string { return f.text }

func failure(status int, format string, args ...any) error {
	return &failed{status, http.StatusText(status), fmt.Sprintf(format, args...)}
}

// statusOf is the status of an error. A record that is damaged or gone is not found.
func statusOf(err error) int {
	var f *failed
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &f):
		return f.status
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound
	}
	return http.StatusInternalServerError
}

// writeError answers with the reason: as JSON below /api/, else as a page.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if strings.HasPrefix(r.URL.Path, "/api/") {
		writeJSON(w, status, map[string]any{"schema_version": 1, "message_type": "error", "status": status, "message": err.Error()})
		return
	}
	if status == http.StatusForbidden { // nothing of the page for another site
		http.Error(w, err.Error(), status)
		return
	}
	page := errorPage{Status: status, Name: http.StatusText(status), Text: err.Error()}
	var f *failed
	if errors.As(err, &f) {
		page.Name = f.name
	}
	if err := s.render(w, r, status, "error", page.Name, page); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

type errorPage struct {
	Status     int
	Name, Text string
}

// writeJSON answers with a document.
func writeJSON(w http.ResponseWriter, status int, document any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		http.Error(w, fmt.Sprintf("the document cannot be written: %v", err), http.StatusInternalServerError)
		return
	}
	writeDocument(w, status, text.Bytes())
}

func writeDocument(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client is gone if this fails
}

// asset is a file that pages load.
type asset struct {
	data      []byte
	kind, tag string
}

// assetKinds are the types of the files in assets/.
var assetKinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json",
}

// readAssets reads the embedded files. The style sheet also has the rules of reports and plots.
func readAssets() (map[string]asset, error) {
	entries, err := embedded.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	all := map[string]asset{}
	for _, e := range entries {
		data, err := embedded.ReadFile(path.Join("assets", e.Name()))
		if err != nil {
			return nil, err
		}
		if e.Name() == "style.css" {
			data = append(data, document.CSS...)
		}
		sum := sha256.Sum256(data)
		all[e.Name()] = asset{data, assetKinds[path.Ext(e.Name())], `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return all, nil
}

func (s *Server) asset(w http.ResponseWriter, r *http.Request) error {
	a, ok := s.assets[r.PathValue("name")]
	if !ok {
		return failure(http.StatusNotFound, "there is no file %s here", clip(r.PathValue("name"), 80))
	}
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("ETag", a.tag)
	if r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	_, _ = w.Write(a.data)
	return nil
}

// icon answers browsers that ask for an icon without being told of one.
func (s *Server) icon(w http.ResponseWriter, _ *http.Request) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

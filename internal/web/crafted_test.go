package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/ledger"
)

// plantFiles writes a record's directory with its checksums.
func plantFiles(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	var sums bytes.Buffer
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sha256sums"), sums.Bytes(), 0o444); err != nil {
		t.Fatal(err)
	}
}

// hostile are texts that a page must show as they are.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'-alert(1)-'`, `</title><script>alert(2)</script>`, `javascript:alert(1)`,
	`{{.}}`, "a\x00b\r\n\tc", strings.Repeat("long", 20000), `../../../etc/passwd`, `%2e%2e%2f`, "\u202eright to left", `</svg><script>alert(3)</script>`,
}

// marker is in every crafted text, so that a test finds where it is shown.
const marker = "alert("

// craft writes copies of published records with hostile texts in every string, and huge or odd
// numbers in every figure.
func craft(t testing.TB) *ledger.Ledger {
	t.Helper()
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(7, 7))
	craftKind(t, dir, "runs", "run.json", random)
	craftKind(t, dir, "benches", "bench.json", random)
	craftKind(t, dir, "tunings", "tuning.json", random)
	for i, text := range hostile { // a search that runs has files of its own
		id := fmt.Sprintf("20261117-0500%02d-x-%06x", i, i)
		folder := filepath.Join(dir, "tuning", id)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		name, _ := json.Marshal(text)
		search := fmt.Sprintf(`{"schema_version":1,"id":%s,"ahead":1,"search":{"kernel":%s,"variant":%s,"objective":"time","shapes":[%s]}}`, name, name, name, name)
		line := fmt.Sprintf(`{"asked":1,"detail":{"variant":%s,"cost":1e308,"new_best":true,"failure":%s,"reason":%s}}`, name, name, name)
		for file, body := range map[string]string{"search.json": search, "journal.jsonl": "{}\n" + line + "\n{broken\n" + line + "\n{\"asked\"", "elite.json": `{"elites":[{"variant":` + string(name) + `}]}`} {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return openLedger(t, dir)
}

// craftKind copies some records of a kind, each with other values.
func craftKind(t testing.TB, dir, kind, document string, random *rand.Rand) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("../../results", kind))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if i%3 != 0 && kind == "runs" {
			continue
		}
		source := filepath.Join("../../results", kind, e.Name())
		text, err := os.ReadFile(filepath.Join(source, document))
		if err != nil {
			t.Fatal(err)
		}
		var record map[string]any
		if err := json.Unmarshal(text, &record); err != nil {
			t.Fatal(err)
		}
		id, at := record["id"], record["time"]
		record = spoil(record, random, i).(map[string]any)
		record["id"], record["time"], record["schema_version"] = id, at, 1
		if document == "tuning.json" {
			record["message_type"] = "tuning"
		}
		if text, err = json.Marshal(record); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{document: text}
		if samples, err := os.ReadFile(filepath.Join(source, "samples.json.gz")); err == nil {
			files["samples.json.gz"] = samples
		}
		plantFiles(t, filepath.Join(dir, kind, e.Name()), files)
	}
}

// spoil replaces texts by hostile ones, and figures by huge ones. Some keys are dropped.
func spoil(v any, random *rand.Rand, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) { // the same contents each time
			value := v[key]
			if random.IntN(40) == 0 {
				delete(v, key)
				continue
			}
			v[key] = spoil(value, random, depth)
		}
		return v
	case []any:
		for i := range v {
			v[i] = spoil(v[i], random, depth)
		}
		return v
	case string:
		return hostile[random.IntN(len(hostile))]
	case float64:
		if v == float64(int64(v)) {
			return v // counts must fit their type for the record to be read at all
		}
		return []any{1e308, -1e308, 1e-308, 0, -0.5, v}[random.IntN(6)]
	}
	return v
}

// TestCraftedLedger renders records with hostile contents: each page is harmless, or refused with its
// reason.
func TestCraftedLedger(t *testing.T) {
	if testing.Short() {
		t.Skip("more than a hundred pages of damaged records")
	}
	t.Parallel()
	kept := craft(t)
	s := newServer(t, kept)
	l, err := s.records.now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"/", "/runs", "/runs?q=%3Cscript%3E" + marker, "/benches", "/tunings", "/compare", "/api/runs", "/api/champions", "/api/ladder"}
	for _, kind := range []string{"runs", "benches", "tunings", "tuning"} {
		entries, err := filepath.Glob(filepath.Join(kept.TuningFolder("x"), "../..", kind, "*"))
		if err != nil || len(entries) == 0 {
			t.Fatal(kind, err)
		}
		for _, e := range entries {
			page := map[string]string{"runs": "/runs/", "benches": "/benches/", "tunings": "/tunings/", "tuning": "/tunings/"}[kind]
			paths = append(paths, page+filepath.Base(e), "/api"+page+filepath.Base(e), page+filepath.Base(e)+"/report")
		}
	}
	if len(l.entries) > 1 {
		paths = append(paths, "/compare?a="+l.entries[0].ID+"&b="+l.entries[1].ID)
	}
	shown, refused := 0, 0
	for _, path := range paths {
		w := get(s, path)
		switch {
		case w.Code == http.StatusOK:
			shown++
		case w.Body.Len() > 20:
			refused++
		default:
			t.Errorf("%s: status %d without a reason", path, w.Code)
		}
		checkHarmless(t, path, w)
	}
	t.Logf("%d pages shown, %d refused with a reason, %d records listed as damaged", shown, refused, len(l.damage))
	if shown < 30 {
		t.Errorf("only %d of %d pages were shown; the test shows little", shown, len(paths))
	}
}

// checkHarmless looks for tags and attributes that a hostile text made.
func checkHarmless(t *testing.T, path string, w *httptest.ResponseRecorder) {
	t.Helper()
	body := w.Body.String()
	if kind := w.Header().Get("Content-Type"); !strings.HasPrefix(kind, "text/html") {
		if strings.HasPrefix(path, "/api/") && kind != "application/json" {
			t.Errorf("%s: type %q", path, kind)
		}
		return
	}
	for rest := body; ; {
		i := strings.IndexByte(rest, '<')
		if i < 0 {
			break
		}
		rest = rest[i:]
		m := element.FindStringSubmatch(rest)
		switch {
		case strings.HasPrefix(rest, "<!doctype html>"):
		case m == nil:
			t.Fatalf("%s: this is no element of ours: %.160s", path, rest)
		case strings.Contains(m[0], "<script") && m[0] != `<script src="/assets/app.js">`, m[1] == "img", m[1] == "iframe", handlerAttribute.MatchString(unquoted.ReplaceAllString(m[0], "")):
			t.Errorf("%s: a text made an element: %.160s", path, m[0])
		case strings.Contains(m[0], `href="javascript:`):
			t.Errorf("%s: a link runs a script: %.160s", path, m[0])
		}
		rest = rest[1:]
	}
	if len(body) > maxWeight && !strings.HasSuffix(path, "/report") { // a report prints names of any length
		t.Errorf("%s weighs %d bytes", path, len(body))
	}
}

// In a page every < begins an element with quoted attributes: texts have &lt;.
var (
	element          = regexp.MustCompile(`^</?([a-zA-Z][a-zA-Z0-9]*)((?:\s+[a-zA-Z0-9:-]+(?:=(?:"[^"<]*"))?)*)\s*/?>`)
	unquoted         = regexp.MustCompile(`"[^"]*"`)
	handlerAttribute = regexp.MustCompile(`\son[a-z]+=`)
)

// TestDamagedRecords removes and changes files of records. The others are still listed.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyResults(t, dir)
	const changed, without, renamed = "20261116-160615-stage2-448d06", "20261116-160644-stage3b-64f3ef", "20261116-160630-stage3a-05d2ee"
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("runs/"+changed+"/run.json", "{}")
	if err := os.Remove(filepath.Join(dir, "runs", without, "samples.json.gz")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "runs", renamed), filepath.Join(dir, "runs", "20261116-160630-stage3a-000000")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "runs", "20261116-160630-stage3a-111111")); err != nil {
		t.Fatal(err)
	}
	write("benches/20261116-221937-bench-6be430/bench.json", "[")
	write("tunings/20261117-075034-rmsnorm-64bd56/tuning.json", "[")
	write("champions/20261115-071645-sm_90-e9ff28/champion.json", "{")
	s := newServer(t, openLedger(t, dir))
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/":                                     {200, "Damaged records"},
		"/runs":                                 {200, "runs"},
		"/runs/" + changed:                      {404, "<title>Damaged record"},
		"/runs/" + without:                      {200, "samples.json"},
		"/runs/20261116-160630-stage3a-000000":  {404, "was renamed"},
		"/runs/20261116-160630-stage3a-111111":  {404, "<title>Damaged record"},
		"/benches/20261116-221937-bench-6be430": {404, "<title>Damaged record"},
		"/benches":                              {200, "20261116-221937-bench-6be430"},
		"/tunings":                              {200, "Damaged records"},
		"/tunings/20261117-075034-rmsnorm-64bd56":         {404, "<title>Damaged record"},
		"/tunings/20261117-075034-rmsnorm-64bd56/report":  {404, "<title>Damaged record"},
		"/api/tunings/20261117-075034-rmsnorm-64bd56":     {404, "was changed"},
		"/benches/6be430/report":                          {303, ""},
		"/api/champions":                                  {200, `"champions": []`},
		"/compare?a=" + without + "&b=" + without:         {404, "samples.json"},
		"/api/runs/" + strings.Repeat("..%2f", 3) + "etc": {404, "no run"},
	} {
		w := get(s, path)
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s: status %d, want %d with %q: %s", path, w.Code, want.status, want.text, alert(w.Body.String()))
		}
	}
}

// TestMalformedRequests sends 1,000 malformed requests over a connection. The server answers them or
// closes the connection, and still works.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 200 * time.Millisecond, ReadTimeout: time.Second, MaxHeaderBytes: maxHeaderBytes, ErrorLog: s.config.Errors}
	go server.Serve(listener)
	defer server.Close()
	random := rand.New(rand.NewPCG(1, 2))
	requests := make(chan []byte)
	done := make(chan map[string]int)
	const workers = 8
	count := 1000
	if testing.Short() {
		count = 100
	}
	for range workers {
		go func() {
			answers := map[string]int{}
			for text := range requests {
				answers[send(listener.Addr().String(), text)]++
			}
			done <- answers
		}()
	}
	for i := range count {
		if i%2 == 0 {
			requests <- malformed(random)
		} else {
			requests <- unexpected(random)
		}
	}
	close(requests)
	total := map[string]int{}
	for range workers {
		for answer, n := range <-done {
			total[answer] += n
		}
	}
	t.Logf("answers: %v", total)
	if total["500"] > 0 || len(total) < 4 {
		t.Errorf("answers: %v; want several kinds and no 500", total)
	}
	if w := get(s, "/"); w.Code != http.StatusOK {
		t.Errorf("afterwards the overview has status %d", w.Code)
	}
}

// send writes a request and returns the status of the answer, or what happened instead.
func send(address string, request []byte) string {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "refused"
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(request); err != nil {
		return "closed"
	}
	answer := make([]byte, 64)
	n, _ := conn.Read(answer)
	fields := strings.Fields(string(answer[:n]))
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/") {
		return "closed"
	}
	return fields[1]
}

// unexpected makes a request that HTTP allows and the server does not expect, so that it reaches a
// handler.
func unexpected(random *rand.Rand) []byte {
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	odd := pick("", "0", "-1", "1e999", "99999999999999999999", "../../../etc/passwd", "<script>", "stage2+", "stage2+TILE_N=999", "latest", "\x00\xff\xfe", "%", "a=b&c",
		strings.Repeat("x", random.IntN(3000)), "20261116-160615-stage2-448d06", "20261116-160615-stage2-448d06/../..", "{{.}}", "💩")
	path := pick("/runs/", "/benches/", "/tunings/", "/assets/", "/api/runs/", "/api/benches/", "/api/tunings/", "/api/jobs/") + url.PathEscape(odd) + pick("", "/report", "/events", "/")
	if random.IntN(2) == 0 {
		key := pick("q", "page", "verdict", "a", "b", "shapes", "variant", "arch", "file", "line", "ptx", "stage", "TILE_N", "limit", "part", "token")
		path = pick("/", "/runs", "/compare", "/kernel", "/knobs", "/start", "/api/runs", "/api/compare", "/tunings/20261117-075034-rmsnorm-64bd56") + "?" + key + "=" + url.QueryEscape(odd) + pick("", "&a=20261116-160615-stage2-448d06&b=x", "&variant=stage2&line=-5&ptx=99999999")
	}
	method := pick("GET", "GET", "GET", "GET", "POST", "DELETE", "PUT", "PATCH", "HEAD")
	body := pick("", `{"variants":["stage2"]}`, `{"variants":null}`, `{"variants":[],"device":"x; rm -rf /"}`, "variant="+url.QueryEscape(odd), "job="+url.QueryEscape(odd), "token="+url.QueryEscape(odd), "[]", "nul")
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost:8180\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		method, path, testToken, pick("application/json", "application/x-www-form-urlencoded"), len(body), body)
}

// malformed makes a request out of valid parts and mutations of them.
func malformed(random *rand.Rand) []byte {
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	garbage := func(n int) string {
		b := make([]byte, random.IntN(n)+1)
		for i := range b {
			b[i] = byte(random.IntN(256))
		}
		return string(b)
	}
	path := pick("/", "/runs/", "/api/runs/", "/api/compare?a=", "/kernel?variant=", "/knobs?stage=", "/tunings/", "/assets/", "/api/jobs/", "/runs?page=", "//", "/api/tunings/x/events") +
		pick("", "%00", "%zz", "..%2f..%2fetc%2fpasswd", strings.Repeat("A", random.IntN(20000)), "%F0%9F%92%A9", "-1", "99999999999999999999", ";'\"<>", garbage(40), "../../../etc/passwd", "?a=&&&==&a")
	text := pick("GET", "GET", "POST", "DELETE", "PUT", "OPTIONS", "TRACE", "get", garbage(8)) + " " + path + " " + pick("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", garbage(5)) + "\r\n"
	headers := []string{
		"Host: 127.0.0.1", "Host: 127.0.0.1", "Host: " + garbage(10), "Content-Length: " + pick("0", "5", "-5", "99999999999", "x"), "Transfer-Encoding: " + pick("chunked", "gzip", garbage(6)),
		"Authorization: Bearer " + pick(testToken, garbage(20)), "Content-Type: " + pick("application/json", "application/x-www-form-urlencoded", garbage(8)), "Cookie: " + tokenCookie + "=" + garbage(10),
		"Origin: " + pick("http://127.0.0.1", "null", "http://[", garbage(10)), "Last-Event-ID: " + pick("-1", "99999999999999999999", "1.2.3", garbage(10)), garbage(30), "X: " + strings.Repeat("y", random.IntN(20000)),
		"Range: bytes=-9", "Expect: 100-continue", "Upgrade: websocket", "If-None-Match: " + garbage(10),
	}
	random.Shuffle(len(headers), func(i, j int) { headers[i], headers[j] = headers[j], headers[i] })
	text += strings.Join(slices.Clone(headers[:random.IntN(5)]), "\r\n") + "\r\n" + pick("Host: 127.0.0.1\r\nContent-Length: 9\r\n\r\n", "\r\n", "\r\n\r\n", "")
	text += pick("", `{"variants":[1]}`, `{"variants":["stage2"],"x":1}`, "[[[[[[[", "job=x&job=%zz", garbage(200), "5\r\nabc")
	if random.IntN(3) == 0 {
		text = text[:random.IntN(len(text)+1)]
	}
	return []byte(text)
}

//go:build !nobrowser

package web

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"iter"
	"maps"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/python"
	"attune/internal/run"
	"attune/internal/toolchain"
)

// screenshot is where to write the picture of the README.
var screenshot = flag.String("screenshot", "", "write a picture of the overview to this PNG `file`")

// requiredVariable makes a missing browser a failure. `make test` sets it.
const requiredVariable = "ATTUNE_BROWSER"

// browser is one Chromium for all tests, or why there is none.
type browser struct {
	ctx   context.Context
	close func()
	err   error
}

var (
	theBrowser      browser
	startTheBrowser sync.Once
)

func init() {
	atEnd = func() {
		if theBrowser.close != nil {
			theBrowser.close()
		}
	}
}

// startBrowser starts Chromium without a window. It can reach nothing but 127.0.0.1.
func startBrowser() (b browser) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		b.err = errors.New("no Chromium in PATH; `apt-get install chromium` installs it")
		return b
	}
	dir, err := os.MkdirTemp("", "attune-browser-")
	if err != nil {
		b.err = err
		return b
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(dir), chromedp.NoFirstRun)
	for _, name := range []string{"disable-gpu", "disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(name, true))
	}
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	allocator, closeAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeContext := chromedp.NewContext(allocator)
	b.ctx = ctx
	b.close = func() {
		closeContext()
		closeAllocator()
		os.RemoveAll(dir)
	}
	b.err = chromedp.Do(ctx)
	return b
}

// tab is a page of the browser. It collects what no page of ours may do.
type tab struct {
	t      testing.TB
	ctx    context.Context
	server *url.URL

	mu       sync.Mutex
	problems []string
	requests int
}

// needBrowser starts the browser. Without one the test is skipped, unless it is required.
func needBrowser(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a browser")
	}
	startTheBrowser.Do(func() { theBrowser = startBrowser() })
	if err := theBrowser.err; err != nil {
		if os.Getenv(requiredVariable) != "" || os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// browse serves records, which it makes only if there is a browser, and opens an empty page.
func browse(t testing.TB, records func(testing.TB) *ledger.Ledger, change ...func(*Config)) (*Server, *tab) {
	t.Helper()
	needBrowser(t)
	s := newServer(t, records(t), change...)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, openTab(t, server.URL)
}

// openTab opens an empty page.
func openTab(t testing.TB, address string) *tab {
	t.Helper()
	needBrowser(t)
	ctx, cancel := chromedp.NewContext(theBrowser.ctx)
	t.Cleanup(cancel)
	ctx, cancelTime := context.WithTimeout(ctx, 100*time.Second)
	t.Cleanup(cancelTime)
	server, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &tab{t: t, ctx: ctx, server: server}
	b.run() // makes the page, so that the streams below belong to it
	go b.readConsole(chromedp.Console(ctx))
	go b.readRequests(chromedp.Events(ctx, network.RequestWillBeSent))
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// readConsole takes errors, warnings, exceptions, and what the policy has blocked.
func (b *tab) readConsole(messages iter.Seq2[chromedp.ConsoleMessage, error]) {
	for m, err := range messages {
		if err != nil {
			return // the page is closed
		}
		if m.IsException() || m.Type == "error" || m.Type == "warning" {
			b.add(fmt.Sprintf("console %s: %s %s", m.Type, m.Text, m.URL))
		}
	}
}

// readRequests takes requests to other hosts.
func (b *tab) readRequests(requests iter.Seq2[network.EventRequestWillBeSent, error]) {
	for r, err := range requests {
		if err != nil {
			return // the page is closed
		}
		b.mu.Lock()
		b.requests++
		b.mu.Unlock()
		if to, err := url.Parse(r.Request.URL); err != nil || to.Host != b.server.Host && to.Scheme != "about" {
			b.add("a request leaves the machine: " + r.Request.URL)
		}
	}
}

func (b *tab) add(problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, problem)
}

// check fails the test for what the page should not have done.
func (b *tab) check(where string) {
	b.t.Helper()
	time.Sleep(20 * time.Millisecond) // the streams are read by other goroutines
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Errorf("%s: %s", where, p)
	}
	b.problems = nil
	if b.requests == 0 {
		b.t.Errorf("%s: no request was seen", where)
	}
}

func (b *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// open loads a page and waits for its script.
func (b *tab) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate("http://"+b.server.Host+path), chromedp.WaitVisible(chromedp.CSS(`html[data-ready="yes"] main`)))
}

// value evaluates an expression.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

// until waits for an expression to become true.
func (b *tab) until(expression string, limit time.Duration) {
	b.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if value[bool](b, expression) {
			return
		}
	}
	b.t.Fatalf("after %s this does not hold: %s", limit, expression)
}

// theme sets the system's theme.
func (b *tab) theme(name string) {
	b.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.t.Fatal(err)
	}
}

// browserPages is one page of each kind.
func browserPages(t testing.TB, s *Server) []string {
	t.Helper()
	return []string{
		"/", "/runs", "/runs/20261116-160615-stage2-448d06", "/runs/20261117-074843-stage7-de5e53", "/compare",
		"/compare?a=20261116-160615-stage2-448d06&b=20261116-160644-stage3b-64f3ef", "/benches", "/benches/20261116-221937-bench-6be430",
		"/tunings", "/tunings/20261117-075034-rmsnorm-64bd56", "/kernel?variant=stage2", "/kernel?variant=stage2&file=ladder/shared_scores/mainloop.cuh&line=60",
		"/knobs?stage=stage2&TILE_N=32", "/start", "/ladder", "/runs/20261117-074843-stage7-de5e53/report", "/benches/20261116-221937-bench-6be430/report",
	}
}

// contrastScript lists the texts with a contrast below 4.5 to what is behind them.
const contrastScript = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const luminance = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const behind = (element) => {
    const plot = element.closest("svg");
    if (plot) return rgba(getComputedStyle(plot.querySelector(".bg")).fill);
    for (let e = element; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; }
    return rgba("Canvas");
  };
  const low = [];
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.textContent.trim() || e.closest("title, desc, script, datalist, option, dialog:not([open])") || e.getClientRects().length === 0) continue;
    const style = getComputedStyle(e);
    const a = luminance(rgba(e.closest("svg") ? style.fill : style.color)), b = luminance(behind(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    texts++;
    if (contrast < 4.5) low.push(contrast.toFixed(2) + " " + e.tagName + "." + e.className + ": " + node.textContent.trim().slice(0, 40));
  }
  if (texts < 20) low.push("only " + texts + " texts were found");
  return low;
})()`

// labelScript lists controls, tables and parts that have no name for a screen reader.
const labelScript = `(() => {
  const wrong = [];
  const name = (e) => (e.getAttribute("aria-label") || (e.labels && [...e.labels].map((l) => l.textContent).join(" ")) || e.textContent || "").trim();
  for (const e of document.querySelectorAll("input:not([type=hidden]), select, button, a[href], [role=region], progress"))
    if (!name(e)) wrong.push("no name: " + e.outerHTML.slice(0, 120));
  for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby]"))
    for (const id of ((e.getAttribute("aria-labelledby") || "") + " " + (e.getAttribute("aria-describedby") || "")).trim().split(/\s+/))
      if (!document.getElementById(id)) wrong.push("no element " + id);
  for (const e of document.querySelectorAll("th:not([scope])")) wrong.push("a head without scope: " + e.textContent);
  for (const e of document.querySelectorAll("svg")) if (e.getAttribute("role") !== "img" || !e.querySelector("title, desc")) wrong.push("a plot without a text");
  for (const tag of ["header", "main", "footer", "h1", "nav[aria-label]"]) if (!document.querySelector(tag)) wrong.push("no " + tag);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) wrong.push("two elements " + id);
  let level = 1;
  for (const e of document.querySelectorAll("main h1, main h2, main h3, main h4")) {
    const now = Number(e.tagName[1]);
    if (now > level + 1) wrong.push("a heading skips a level: " + e.textContent);
    level = now;
  }
  return wrong;
})()`

// checkLayout checks the labels of an open page, and that it fits narrow windows.
func checkLayout(t *testing.T, b *tab, path string) {
	t.Helper()
	for _, text := range value[[]string](b, labelScript) {
		t.Errorf("%s: %s", path, text)
	}
	for _, width := range []int64{800, 360} {
		b.run(chromedp.EmulateViewport(width, 800))
		if over := value[string](b, overflowScript); over != "" {
			t.Errorf("%s at %d pixels is too wide: %s", path, width, over)
		}
	}
}

// TestBrowserPages loads every kind of page in both themes and three widths.
func TestBrowserPages(t *testing.T) {
	s, b := browse(t, published)
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		for _, path := range browserPages(t, s) {
			where := theme + " " + path
			b.run(chromedp.EmulateViewport(1600, 1000))
			b.open(path)
			for _, text := range value[[]string](b, contrastScript) {
				t.Errorf("%s: contrast %s", where, text)
			}
			if theme == "light" { // labels and widths are those of the dark theme
				checkLayout(t, b, path)
			}
			b.check(where)
		}
	}
}

// TestBrowserChosenTheme chooses the theme that the system does not have: texts and plots follow.
func TestBrowserChosenTheme(t *testing.T) {
	_, b := browse(t, published)
	for system, chosen := range map[string]string{"light": "dark", "dark": "light"} {
		b.theme(system)
		b.open("/runs")
		value[chromedp.Void](b, `localStorage.setItem("theme", "`+chosen+`")`)
		for _, path := range []string{"/", "/runs/20261116-160615-stage2-448d06", "/runs/20261116-160615-stage2-448d06/report"} {
			b.open(path)
			for _, text := range value[[]string](b, contrastScript) {
				t.Errorf("%s chosen on %s, %s: contrast %s", chosen, system, path, text)
			}
			if dark := value[bool](b, `getComputedStyle(document.body).backgroundColor === "rgb(20, 23, 27)"`); dark != (chosen == "dark") {
				t.Errorf("%s chosen on %s, %s: the page is dark: %v", chosen, system, path, dark)
			}
		}
	}
	b.check("themes")
}

// overflowScript names an element that makes the page scroll sideways. A table may scroll inside its
// region.
const overflowScript = `(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return "";
  const e = [...document.querySelectorAll("body *")].find((e) => e.getBoundingClientRect().right > width + 1 && !e.closest(".scroll, .skip, .log"));
  return document.documentElement.scrollWidth + ": " + (e ? e.outerHTML.slice(0, 150) : "unknown");
})()`

// hiddenScript lists rows whose first cell or verdict is not within the window, without scrolling, and
// tables that go on beyond it without a shade.
const hiddenScript = `(() => {
  const width = document.documentElement.clientWidth, wrong = [];
  const inside = (e) => { const r = e.getBoundingClientRect(); return r.left >= -1 && r.right <= width + 1; };
  for (const row of document.querySelectorAll(".scroll:not(.lines) tbody tr")) {
    if (row.offsetParent === null) continue; // in details that are closed
    for (const e of [row.cells[0], ...row.querySelectorAll(".tag, td.outcome")])
      if (!inside(e)) wrong.push(e.textContent.trim().slice(0, 40) + " in " + row.textContent.trim().slice(0, 40));
  }
  for (const e of document.querySelectorAll(".scroll:not(.lines)"))
    if (e.scrollWidth > e.clientWidth && !getComputedStyle(e).backgroundImage.includes("linear-gradient")) wrong.push("no shade: " + e.getAttribute("aria-label"));
  return wrong;
})()`

// TestBrowserNarrowTables looks at tables on a telephone: a row says what it is about and its verdict
// without scrolling.
func TestBrowserNarrowTables(t *testing.T) {
	_, b := browse(t, withRuns)
	b.run(chromedp.EmulateViewport(360, 800))
	for _, path := range []string{"/", "/runs", "/ladder", "/compare?a=20261116-160615-stage2-448d06&b=20261116-160644-stage3b-64f3ef", "/runs/20261117-074843-stage7-de5e53/report"} {
		b.open(path)
		for _, text := range value[[]string](b, hiddenScript) {
			t.Errorf("%s: %s", path, text)
		}
	}
	b.check("narrow tables")
}

// withRuns is the published ledger with a correct run without times, and one whose outputs could not be
// checked, of another kernel.
func withRuns(t testing.TB) *ledger.Ledger {
	t.Helper()
	kept := published(t)
	addRun(t, kept, "20261119-010101-quick-00aa01", func(r *run.Run) {
		r.Gates.Correctness = gate.Pass
	})
	addRun(t, kept, "20261119-010102-other-00aa02", func(r *run.Run) {
		r.Kernel = "softmax"
		r.Gates.Correctness = gate.NotMeasured
		r.Reasons.Correctness = []string{"the simulator cannot run tcgen05"}
	})
	return kept
}

// addRun records a run on the simulator.
func addRun(t testing.TB, kept *ledger.Ledger, id string, change func(r *run.Run)) {
	t.Helper()
	at, err := time.Parse("20060102-150405", id[:15])
	if err != nil {
		t.Fatal(err)
	}
	variant := strings.Split(id, "-")[2]
	r := &run.Run{SchemaVersion: 1, ID: id, Time: at, Kernel: "sdpa", Variant: variant, Stage: variant, Device: "sim", Arch: "sm_90a", Verdict: gate.Unknown}
	r.Gates.Resources, r.Gates.Performance, r.Gates.Profile = gate.Pass, gate.NotMeasured, gate.NotMeasured
	change(r)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Record(t.Context(), map[string][]byte{"run.json": text}); err != nil {
		t.Fatal(err)
	}
}

// TestBrowserOutcomes compares the colours and figures of the overview: a verdict has one colour in
// tables and plots, and a time the same digits. Only what was not checked is grey.
func TestBrowserOutcomes(t *testing.T) {
	_, b := browse(t, withRuns)
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		b.open("/")
		colour := func(verdict string) string {
			return value[string](b, `getComputedStyle([...document.querySelectorAll("table .tag")].find((e) => e.textContent === "`+verdict+`")).color`)
		}
		mark := func(text string) string {
			return value[string](b, `(() => {
			  const label = [...document.querySelectorAll("svg text")].find((e) => e.textContent === "`+text+`");
			  return getComputedStyle(label.previousElementSibling).fill;
			})()`)
		}
		for verdict, text := range map[string]string{"merge": "accepted", "valid-negative": "not accepted"} {
			if in, drawn := colour(verdict), mark(text); in != drawn {
				t.Errorf("%s: %s is %s in the table and %s in the plot", theme, verdict, in, drawn)
			}
		}
		if correct, unchecked := colour("correct, not timed"), colour("not-measured"); correct != colour("merge") || unchecked == correct {
			t.Errorf("%s: correct, not timed is %s, not-measured %s", theme, correct, unchecked)
		}
	}
	drawn := value[[]string](b, `[...document.querySelectorAll("svg text")].map((e) => e.textContent).filter((text) => / us, .*x$/.test(text))`)
	listed := value[[]string](b, `[...document.querySelectorAll("#ladder tbody tr")].map((r) => r.cells[2].textContent.replace(/\s*~$/, "") + ", " + r.cells[3].textContent)`)
	if !slices.Equal(drawn, listed) || len(drawn) < 5 {
		t.Errorf("the plot has %q, the table %q", drawn, listed)
	}
	kernels := value[[]string](b, `[...document.querySelectorAll("[aria-label='Latest runs'] tbody tr")].slice(0, 2).map((r) => r.cells[2].textContent)`)
	if !slices.Equal(kernels, []string{"softmax", "sdpa"}) {
		t.Errorf("the kernels of the newest runs are %q", kernels)
	}
	b.check("outcomes")
}

// What must beat a champion are the stages and selections of which it is the parent.
func TestRivals(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t))
	kernel, _, err := s.config.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.records.now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := rivals(kernel, "stage3b", l.ladder)
	i := slices.IndexFunc(all, func(r rival) bool { return r.Name == "stage7" })
	if i < 0 || all[i].Required != 1.15 || all[i].Run == nil || all[i].Run.Verdict != "merge" || all[i].OtherParent {
		t.Errorf("rivals of stage3b: %+v", all)
	}
	if all := rivals(kernel, "stage7", l.ladder); len(all) > 0 {
		t.Errorf("rivals of stage7: %+v", all)
	}
}

// TestBrowserCopies presses the button of a command: what is pasted is the command in one line.
func TestBrowserCopies(t *testing.T) {
	_, b := browse(t, published)
	b.open("/runs/20261116-160615-stage2-448d06")
	value[chromedp.Void](b, `(() => { Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { window.copied = text; } } }); })()`)
	value[chromedp.Void](b, `document.querySelector("pre .copy").click()`)
	b.until(`document.querySelector("pre .copy").textContent === "Copied"`, 2*time.Second)
	if got := value[string](b, `window.copied`); got != "attune reproduce 20261116-160615-stage2-448d06" {
		t.Errorf("copied %q", got)
	}
	b.check("copy")
}

// TestBrowserWeight adds up what a page and its assets have, uncompressed.
func TestBrowserWeight(t *testing.T) {
	s, b := browse(t, published)
	for _, path := range browserPages(t, s) {
		b.open(path)
		const weight = `performance.getEntries().filter((e) => e.decodedBodySize).reduce((sum, e) => sum + e.decodedBodySize, 0)`
		if bytes := value[float64](b, weight); bytes > maxWeight || bytes < 2000 {
			t.Errorf("%s weighs %.0f bytes, limit %d", path, bytes, maxWeight)
		}
	}
	b.check("weight")
}

// TestBrowserFocusOrder presses Tab: the focus follows the order of the page, begins with the skip
// link, and is visible.
func TestBrowserFocusOrder(t *testing.T) {
	_, b := browse(t, published)
	for _, path := range []string{"/", "/runs", "/knobs?stage=stage2", "/runs/20261116-160615-stage2-448d06"} {
		b.run(chromedp.EmulateViewport(1000, 800))
		b.open(path)
		const focusable = `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, [tabindex='0']")].filter((e) => e.checkVisibility())`
		const presses = 25
		count := value[int](b, focusable+".length")
		if count < presses {
			t.Fatalf("%s has only %d elements to focus", path, count)
		}
		for i := range presses {
			b.run(chromedp.KeyEvent(kb.Tab))
			at := value[int](b, focusable+".indexOf(document.activeElement)")
			if at != i {
				t.Errorf("%s: after %d times Tab the focus is on element %d: %s", path, i+1, at, value[string](b, "document.activeElement.outerHTML.slice(0, 100)"))
				break
			}
			if outline := value[string](b, "getComputedStyle(document.activeElement).outlineStyle"); outline == "none" {
				t.Errorf("%s: the focus is not visible on %s", path, value[string](b, "document.activeElement.outerHTML.slice(0, 100)"))
			}
		}
		if first := value[string](b, focusable+"[0].textContent"); first != "Skip to the content" {
			t.Errorf("%s: the first element is %q", path, first)
		}
		b.check(path)
	}
	b.open("/runs")
	b.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab))
	if at := value[string](b, "document.activeElement.name || document.activeElement.outerHTML"); at != "q" {
		t.Errorf("behind the skip link the focus is on %s", at)
	}
}

// TestBrowserKeys uses every key of the help.
func TestBrowserKeys(t *testing.T) {
	_, b := browse(t, published)
	b.theme("light")
	b.open("/runs")
	b.run(chromedp.KeyEvent("/"))
	b.until(`document.activeElement.name === "q"`, 2*time.Second)
	b.run(chromedp.KeyEvent("jt?")) // texts in a field are no commands
	b.until(`document.activeElement.value.endsWith("jt?") && !document.getElementById("help").open`, 2*time.Second)
	b.run(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("j"), chromedp.KeyEvent("j"), chromedp.KeyEvent("k"), chromedp.KeyEvent("j"))
	b.until(`document.activeElement.closest("tbody tr") === document.querySelector("tbody").rows[1]`, 2*time.Second)
	b.run(chromedp.KeyEvent("?"))
	b.until(`document.getElementById("help").open && document.getElementById("help").matches(":modal")`, 2*time.Second)
	b.run(chromedp.KeyEvent(kb.Escape))
	b.until(`!document.getElementById("help").open`, 2*time.Second)
	light := value[string](b, `getComputedStyle(document.body).backgroundColor`)
	b.run(chromedp.KeyEvent("t"), chromedp.KeyEvent("t"))
	b.until(`document.documentElement.dataset.theme === "dark" && document.getElementById("theme").textContent === "Theme: dark"`, 2*time.Second)
	if dark := value[string](b, `getComputedStyle(document.body).backgroundColor`); dark == light {
		t.Errorf("the dark theme has the background of the light one, %s", light)
	}
	b.open("/runs")
	if kept := value[string](b, `document.documentElement.dataset.theme`); kept != "dark" {
		t.Errorf("the next page has the theme %q", kept)
	}
	b.run(chromedp.KeyEvent("t"), chromedp.KeyEvent("j"), chromedp.KeyEvent(kb.Enter))
	b.until(`location.pathname.startsWith("/runs/2026")`, 5*time.Second)
	b.run(chromedp.WaitReady(chromedp.CSS(`html[data-ready="yes"]`)), chromedp.KeyEvent("g"), chromedp.KeyEvent("t"))
	b.until(`location.pathname === "/tunings"`, 5*time.Second)
	b.check("keys")
}

// TestBrowserSorts sorts a table by its heads.
func TestBrowserSorts(t *testing.T) {
	_, b := browse(t, published)
	b.open("/runs")
	const times = `[...document.querySelectorAll("tbody tr")].map((r) => parseFloat(r.cells[4].textContent)).filter((v) => !isNaN(v))`
	head := `document.querySelectorAll("thead th")[4]`
	value[chromedp.Void](b, head+`.querySelector("button").click()`)
	if !value[bool](b, `(() => { const t = `+times+`; return t.length > 10 && t.every((v, i) => i === 0 || t[i - 1] <= v); })()`) || value[string](b, head+`.getAttribute("aria-sort")`) != "ascending" {
		t.Error("the times do not rise after one click")
	}
	value[chromedp.Void](b, head+`.querySelector("button").click()`)
	if !value[bool](b, times+`.every((v, i, t) => i === 0 || t[i - 1] >= v)`) {
		t.Error("the times do not fall after two clicks")
	}
	b.check("sorts")
}

// TestBrowserCraftedLedger loads pages with hostile texts: no script of theirs runs.
func TestBrowserCraftedLedger(t *testing.T) {
	s, b := browse(t, craft)
	l, err := s.records.now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"/", "/runs", "/tunings", "/benches", "/compare", "/tunings/20261117-050000-x-000000"}
	for _, e := range l.entries {
		if path := "/runs/" + e.ID; get(s, path).Code == 200 && len(paths) < 12 { // the others are refused
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		b.open(path)
		if n := value[int](b, `document.querySelectorAll("img, script:not([src='/assets/app.js']), iframe, [onerror]").length`); n > 0 {
			t.Errorf("%s has %d elements that a text made", path, n)
		}
		b.check(path)
	}
}

// TestBrowserStartsRun signs in, starts a run by the form and sees its end without reloading.
func TestBrowserStartsRun(t *testing.T) {
	_, b := browse(t, published, withChild(t, "ok"))
	b.open("/start")
	b.run(chromedp.SendKeys(chromedp.CSS(`input[name=token]`), testToken+kb.Enter), chromedp.WaitVisible(chromedp.CSS(`input[name=variant]`)))
	if cookie := value[string](b, `document.cookie`); strings.Contains(cookie, testToken) {
		t.Error("a script can read the token")
	}
	b.run(chromedp.SendKeys(chromedp.CSS(`input[name=variant]`), "stage2"+kb.Enter))
	b.until(`document.querySelector(".job") !== null && document.querySelector(".job").textContent.includes("finished") && document.querySelector(".job a") !== null`, 10*time.Second)
	b.check("start")
}

// attuneProgram builds the program.
func attuneProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "attune")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../cmd/attune").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// start runs the program until the end of the test.
func start(t *testing.T, program string, args ...string) *bufio.Scanner {
	t.Helper()
	process := exec.Command(program, args...)
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var messages bytes.Buffer
	process.Stderr = &messages
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(3*time.Minute, func() { _ = process.Process.Kill() })
	t.Cleanup(func() {
		limit.Stop()
		_ = process.Process.Signal(os.Interrupt)
		err := process.Wait()
		if t.Failed() {
			t.Logf("attune %s: %v: %s", args[0], err, messages.String())
		}
	})
	return bufio.NewScanner(out)
}

// TestBrowserFollowsSearch runs `attune tune` on the simulator and `attune serve` beside it. The page
// shows new evaluations without reloading, and the end of the search.
func TestBrowserFollowsSearch(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a browser and NVIDIA's compiler")
	}
	cache, err := toolchain.CacheDir()
	if err == nil {
		_, err = toolchain.Find(t.Context(), cache)
	}
	if err != nil {
		t.Skipf("the search builds variants: %v", err)
	}
	if err := exec.Command(cmp.Or(os.Getenv(python.Variable), "python3"), "-c", "import numpy").Run(); err != nil {
		t.Skipf("the reference of the example needs numpy: %v", err)
	}
	program, dir := attuneProgram(t), t.TempDir()
	var announced struct{ URL string }
	served := start(t, program, "serve", "--json", "--address", "127.0.0.1:0", "--ledger", dir)
	var document strings.Builder
	for !json.Valid([]byte(document.String())) && served.Scan() {
		document.WriteString(served.Text())
	}
	if err := json.Unmarshal([]byte(document.String()), &announced); err != nil {
		t.Fatalf("attune serve printed %q", document.String())
	}
	go func() {
		for served.Scan() {
		}
	}()
	b := openTab(t, strings.TrimSuffix(announced.URL, "/"))
	search := start(t, program, "tune", "--json", "--kernel", "../../examples/reduce", "--device", "sim", "--shapes", "n=200000", "--budget", "12", "--ledger", dir)
	b.open("/tunings")
	for end := time.Now().Add(60 * time.Second); !value[bool](b, `document.querySelector(".tag.live") !== null`); b.open("/tunings") {
		if time.Now().After(end) {
			t.Fatal("the search does not appear")
		}
	}
	b.run(chromedp.EmulateViewport(360, 800))
	narrow := func(where string) {
		for _, text := range value[[]string](b, hiddenScript) {
			t.Errorf("%s: %s", where, text)
		}
	}
	narrow("the list")
	b.run(chromedp.Click(chromedp.CSS(`table.rows a`)), chromedp.WaitVisible(chromedp.CSS("#live")))
	value[chromedp.Void](b, `window.loaded = true`)
	const counted = `parseInt((document.getElementById("evaluations") || { textContent: "0" }).textContent)`
	var counts []int
	for end := time.Now().Add(90 * time.Second); value[string](b, `document.documentElement.dataset.live || ""`) != "done"; time.Sleep(50 * time.Millisecond) {
		if n := value[int](b, counted); len(counts) == 0 || n != counts[len(counts)-1] {
			narrow("the search")
			counts = append(counts, n)
		}
		if time.Now().After(end) {
			t.Fatalf("the search does not end; evaluations %v", counts)
		}
	}
	b.until(`document.querySelector("#live").textContent.includes("finished") && document.querySelector("#live svg.attune-plot") !== null`, 5*time.Second)
	if len(counts) < 2 || !value[bool](b, `window.loaded === true`) {
		t.Errorf("the page showed these numbers of evaluations: %v", counts)
	}
	if text := value[string](b, `document.getElementById("status").textContent`); text != "The search is finished." {
		t.Errorf("the status is %q", text)
	}
	t.Logf("evaluations on the page: %v", counts)
	b.check("live")
	for search.Scan() {
	}
}

// TestBrowserScreenshot draws the overview for the README. -screenshot keeps the picture.
func TestBrowserScreenshot(t *testing.T) {
	_, b := browse(t, published, func(c *Config) { c.Version = "0.1" })
	b.theme("light")
	b.run(chromedp.EmulateViewport(1200, 760))
	b.open("/")
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	drawn, _, err := image.Decode(bytes.NewReader(picture))
	if err != nil || drawn.Bounds().Dx() != 1200 {
		t.Fatalf("the picture: %v", err)
	}
	if *screenshot != "" {
		file, err := os.Create(*screenshot)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join((&png.Encoder{CompressionLevel: png.BestCompression}).Encode(file, fewColours(drawn)), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// fewColours replaces the colours of a picture by its 256 most frequent ones, which makes its file a
// third of the size.
func fewColours(from image.Image) *image.Paletted {
	counts := map[color.Color]int{}
	bounds := from.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[from.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	to := image.NewPaletted(bounds, colours[:min(256, len(colours))])
	draw.Draw(to, bounds, from, bounds.Min, draw.Src)
	return to
}

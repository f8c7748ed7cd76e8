package web

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"attune/internal/document"
	"attune/internal/measure"
)

// pages are the templates by their name. Each has the layout and the parts that pages share.
type pages map[string]*template.Template

// shared are the templates that are no pages.
var shared = []string{"templates/layout.html", "templates/parts.html"}

func parsePages() (pages, error) {
	entries, err := embedded.ReadDir("templates")
	if err != nil {
		return nil, err
	}
	all := pages{}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), path.Ext(e.Name()))
		if name == "layout" || name == "parts" {
			continue
		}
		t, err := template.New("layout.html").Funcs(functions).ParseFS(embedded, append(shared, "templates/"+e.Name())...)
		if err != nil {
			return nil, err
		}
		all[name] = t
	}
	return all, nil
}

// frame is what the layout shows around a page.
type frame struct {
	Title, Page, Ledger, Version string
	LedgerFlag                   string // of commands that read a record
	SignedIn                     bool
	Data                         any
}

// render writes a page. It is written to memory first, so that an error is still an error page.
func (s *Server) render(w http.ResponseWriter, r *http.Request, status int, page, title string, data any) error {
	return s.renderPart(w, r, status, page, "layout.html", title, data)
}

// renderPart writes one template of a page.
func (s *Server) renderPart(w http.ResponseWriter, r *http.Request, status int, page, part, title string, data any) error {
	var out bytes.Buffer
	f := frame{Title: title, Page: page, Ledger: s.config.LedgerName, Version: s.config.Version, LedgerFlag: s.config.Commands.LedgerFlag(), SignedIn: s.hasToken(r), Data: data}
	if err := s.pages[page].ExecuteTemplate(&out, part, f); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the client is gone if this fails
	return nil
}

// none stands for a figure that was not measured.
const none = "–"

// functions are those of the templates. Figures that were not measured are pointers that may be nil.
var functions = template.FuncMap{
	"date":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") },
	"machine":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"us":       func(v any) string { return figure(v, 2, " us") },
	"ratio":    func(v any) string { return figure(v, 3, "x") },
	"times":    func(v any) string { return figure(v, 2, "x") },
	"speedup":  speedup,
	"legend":   func() []document.VerdictGroup { return document.VerdictLegend() },
	"name":     clipName,
	"segments": segments,
	"clip":     func(n int, text any) string { return clip(fmt.Sprint(text), n) },
	"short":    shortID,
	"tone":     document.VerdictTone,
	"add":      func(a, b int) int { return a + b },
}

// figure formats a number, or a pointer to one, with the decimals that documents have, and a unit behind
// it. Numbers of unusual size have four digits.
func figure(v any, decimals int, unit string) string {
	var value float64
	switch v := v.(type) {
	case *float64:
		if v == nil {
			return none
		}
		value = *v
	case float64:
		value = v
	default:
		return none
	}
	if size := math.Abs(value); size >= 1e-2 && size < 1e7 {
		return strconv.FormatFloat(value, 'f', decimals, 64) + unit
	}
	return number(value) + unit
}

// number formats a figure of any size in a few characters.
func number(v float64) string {
	switch size := math.Abs(v); {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0) || size >= 1e7 || size < 1e-3:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case size >= 1000:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// speedup formats a ratio with its interval.
func speedup(s *measure.Speedup) string {
	if s == nil {
		return none
	}
	return fmt.Sprintf("%sx (%s to %s)", number(s.Ratio), number(s.Low), number(s.High))
}

// clip limits a text to n characters. Records may have names of any length.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n-1]) + "…"
}

// longestName is the length of a name on a page. Names of variants and shapes are shorter; a record may
// have any.
const longestName = 500

// clipName limits a name. It is cut in its middle, because names differ at either end.
func clipName(name string) string {
	if len(name) <= longestName {
		return name
	}
	runes := []rune(name)
	if len(runes) <= longestName {
		return name
	}
	return string(runes[:longestName/2]) + "…" + string(runes[len(runes)-longestName/2:])
}

// segments splits the name of a variant before each knob, where a line may break.
func segments(name string) []string {
	parts := strings.SplitAfter(clipName(name), "+")
	for i := 1; i < len(parts); i++ { // the plus sign begins a line
		parts[i-1], parts[i] = strings.TrimSuffix(parts[i-1], "+"), "+"+parts[i]
	}
	return parts
}

// shortID is the random end of an id, which people use to name it.
func shortID(id string) string {
	const hexDigits = 6
	if len(id) <= hexDigits {
		return id
	}
	return id[len(id)-hexDigits:]
}

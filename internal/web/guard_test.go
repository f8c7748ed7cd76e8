package web

import (
	"net/http"
	"strings"
	"testing"
)

// TestOtherSitesGetNothing sends requests that other sites cause. No answer has anything of a record,
// and no run is started.
func TestOtherSitesGetNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t), func(c *Config) {
		c.Command = func(StartRequest) ([]string, error) {
			t.Error("a request of another site reached the command")
			return nil, http.ErrAbortHandler
		}
	})
	bearer := "Bearer " + testToken
	for name, headers := range map[string][]string{
		"another host name":       {"Host", "attacker.example"},
		"a name with the address": {"Host", "127.0.0.1.attacker.example:8180"},
		"no host name":            {"Host", ""},
		"another address":         {"Host", "10.0.0.1:8180"},
		"another origin":          {"Origin", "http://attacker.example"},
		"another port":            {"Origin", "http://127.0.0.1:9999"},
		"another scheme":          {"Origin", "ftp://127.0.0.1:8180"},
		"no origin":               {"Origin", "null"},
		"no origin, a frame":      {"Origin", "null", "Sec-Fetch-Site", "cross-site"},
		"no origin, typed":        {"Origin", "null", "Sec-Fetch-Site", "none"},
		"two origins":             {"Origin", "http://127.0.0.1:8180", "Origin", "http://attacker.example"},
		"a link":                  {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"},
		"the same site":           {"Sec-Fetch-Site", "same-site"},
	} {
		headers = append(headers, "Authorization", bearer, "Content-Type", "application/json")
		for _, path := range []string{"/", "/runs", "/api/runs", "/api/tunings/20261117-073118-stage3b-9918cd/events", "/assets/app.js", "/?token=" + testToken} {
			w := get(s, path, headers...)
			if w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 {
				t.Errorf("%s: GET %s: status %d, want 403 and no cookie", name, path, w.Code)
			}
			if body := w.Body.String(); strings.Contains(body, "stage3b") || strings.Contains(body, "function") || strings.Contains(body, testToken) {
				t.Errorf("%s: GET %s: the answer has contents: %s", name, path, body)
			}
		}
		for _, path := range []string{"/api/runs", "/start", "/cancel", "/token"} {
			if w := do(s, http.MethodPost, path, `{"variants":["stage2"]}`, headers...); w.Code != http.StatusForbidden {
				t.Errorf("%s: POST %s: status %d, want 403", name, path, w.Code)
			}
		}
	}
}

// TestOwnRequests lets pages of this server, its user and programs through.
func TestOwnRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()))
	for _, headers := range [][]string{
		nil,
		{"Host", "localhost:8180"},
		{"Host", "LOCALHOST"},
		{"Host", "[::1]:8180"},
		{"Host", "localhost:9000"}, // a tunnel
		{"Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:8180"},
		{"Sec-Fetch-Site", "same-origin", "Origin", "null"}, // a form
		{"Sec-Fetch-Site", "none"},
	} {
		if w := get(s, "/", headers...); w.Code != http.StatusOK {
			t.Errorf("%q: status %d", headers, w.Code)
		}
	}
}

// TestHeaders looks at the headers of every kind of answer.
func TestHeaders(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()))
	for _, path := range []string{"/", "/assets/app.js", "/api/runs", "/nothing", "/api/nothing"} {
		h := get(s, path).Header()
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy lacks %q", path, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Content-Type") == "" {
			t.Errorf("%s: headers %v", path, h)
		}
		if h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: other origins are allowed", path)
		}
	}
}

// TestToken starts runs with and without the token.
func TestToken(t *testing.T) {
	t.Parallel()
	started := 0
	s := newServer(t, openLedger(t, t.TempDir()), func(c *Config) {
		c.Command = func(StartRequest) ([]string, error) {
			started++
			return nil, http.ErrNotSupported
		}
	})
	const body, kind = `{"variants":["stage2"]}`, "application/json"
	for _, headers := range [][]string{
		nil,
		{"Authorization", "Bearer "},
		{"Authorization", "Bearer " + testToken[1:]},
		{"Authorization", "Basic " + testToken},
		{"Cookie", tokenCookie + "=" + testToken + "x"},
		{"Cookie", "token=" + testToken},
	} {
		if w := do(s, http.MethodPost, "/api/runs", body, append(headers, "Content-Type", kind)...); w.Code != http.StatusUnauthorized {
			t.Errorf("%q: status %d, want 401", headers, w.Code)
		}
		if w := do(s, http.MethodDelete, "/api/jobs/1", "", headers...); w.Code != http.StatusUnauthorized {
			t.Errorf("%q: DELETE: status %d, want 401", headers, w.Code)
		}
	}
	if started != 0 {
		t.Errorf("%d requests without the token reached the command", started)
	}
	for _, headers := range [][]string{{"Authorization", "Bearer " + testToken}, {"Cookie", tokenCookie + "=" + testToken}} {
		if w := do(s, http.MethodPost, "/api/runs", body, append(headers, "Content-Type", kind)...); w.Code != http.StatusBadRequest {
			t.Errorf("%q: status %d, want that of the command", headers, w.Code)
		}
	}
	if started != 2 {
		t.Errorf("%d of 2 requests with the token reached the command", started)
	}
}

// TestSignIn visits the printed address: the token moves into a cookie that scripts and other sites do
// not get.
func TestSignIn(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()))
	w := get(s, "/?token="+testToken)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" || len(cookies) != 1 {
		t.Fatalf("status %d, location %q, cookies %v", w.Code, w.Header().Get("Location"), cookies)
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" {
		t.Errorf("the cookie is %s", c)
	}
	if body := get(s, "/start", "Cookie", cookies[0].Name+"="+cookies[0].Value).Body.String(); !strings.Contains(body, `action="/start"`) {
		t.Error("the page has no form for who is signed in")
	}
	if w := get(s, "/?token=wrong"); w.Code != http.StatusUnauthorized || len(w.Result().Cookies()) > 0 {
		t.Errorf("a wrong token: status %d", w.Code)
	}
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	if w := do(s, http.MethodPost, "/token", "token="+testToken, form...); w.Code != http.StatusSeeOther || len(w.Result().Cookies()) != 1 {
		t.Errorf("the form: status %d", w.Code)
	}
}

// TestURLs are addresses that can be opened.
func TestURLs(t *testing.T) {
	t.Parallel()
	for bound, want := range map[string]string{
		"127.0.0.1:8180": "http://127.0.0.1:8180/", "[::1]:80": "http://[::1]:80/", "0.0.0.0:8180": "http://localhost:8180/", "[::]:8180": "http://localhost:8180/",
	} {
		urls := URLs(bound)
		if urls[0] != want {
			t.Errorf("%s: %q, want %q first", bound, urls, want)
		}
		for _, u := range urls {
			if strings.Contains(u, "//[::]") || strings.Contains(u, "//0.0.0.0") {
				t.Errorf("%s: %s cannot be opened", bound, u)
			}
		}
	}
	s := newServer(t, openLedger(t, t.TempDir()), func(c *Config) { c.Address, c.Host = "[::]:8180", "lab" })
	if w := get(s, "/", "Host", "evil.example"); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "http://localhost:8180/") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if w := get(s, "/", "Host", "lab:8180"); w.Code != http.StatusOK {
		t.Errorf("the name of the machine: status %d: %s", w.Code, w.Body)
	}
}

// TestPrivateServer reads a server that other machines reach: nothing without the token.
func TestPrivateServer(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t), func(c *Config) { c.Private, c.Address = true, "192.0.2.7:8180" })
	host := []string{"Host", "192.0.2.7:8180"}
	for _, path := range []string{"/", "/runs", "/api/runs", "/api/openapi.json", "/assets/app.js", "/api/jobs/1/events"} {
		w := get(s, path, host...)
		if w.Code != http.StatusUnauthorized || strings.Contains(w.Body.String(), "stage3b") {
			t.Errorf("%s without the token: status %d", path, w.Code)
		}
	}
	if w := get(s, "/api/runs", append(host, "Authorization", "Bearer "+testToken)...); w.Code != http.StatusOK {
		t.Errorf("with the token: status %d", w.Code)
	}
	if w := get(s, "/?token="+testToken, host...); w.Code != http.StatusSeeOther {
		t.Errorf("signing in: status %d", w.Code)
	}
	if w := get(s, "/?token=wrong", host...); w.Code != http.StatusUnauthorized {
		t.Errorf("signing in with a wrong token: status %d", w.Code)
	}
	if w := get(s, "/", "Host", "127.0.0.1:8180", "Authorization", "Bearer "+testToken); w.Code != http.StatusForbidden {
		t.Errorf("by another address: status %d", w.Code)
	}
}

func TestHostNames(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]map[string]bool{
		"127.0.0.1:8180":    {"localhost": true, "127.0.0.1:1": true, "[::1]": true, "host": false, "192.0.2.7": false},
		"[::1]:8180":        {"localhost": true, "[::1]:8180": true, "host": false},
		"0.0.0.0:8180":      {"localhost": true, "192.0.2.7:8180": true, "[2001:db8::1]:80": true, "host.example": false, "0.0.0.0": false},
		"192.0.2.7:8180":    {"192.0.2.7": true, "localhost": false, "192.0.2.8": false},
		"lab.example:8180":  {"lab.example:8180": true, "LAB.example": true, "other.example": false},
		"127.0.0.2:8180":    {"127.0.0.2": true, "localhost": true},
		"[2001:db8::1]:818": {"[2001:db8::1]:818": true, "localhost": false},
	} {
		s := &Server{}
		s.hosts, s.anyAddress = hostNames(address)
		for host, allowed := range want {
			if s.allowedHost(host) != allowed {
				t.Errorf("bound to %s: host %q allowed is %v", address, host, !allowed)
			}
		}
	}
}

// TestNamedHost calls a server by the name that its user gave.
func TestNamedHost(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()), func(c *Config) { c.Address, c.Host = "192.0.2.7:8180", "Lab.example" })
	for host, want := range map[string]int{"lab.example:8180": 200, "192.0.2.7:8180": 200, "other.example:8180": 403} {
		if w := get(s, "/", "Host", host); w.Code != want {
			t.Errorf("%s: status %d, want %d", host, w.Code, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:8180": true, "127.8.8.8:1": true, "[::1]:1": true, "localhost:80": true, "127.0.0.1": true,
		"0.0.0.0:80": false, "[::]:80": false, ":80": false, "192.0.2.7:80": false, "lab.example:80": false,
	} {
		if Loopback(address) != want {
			t.Errorf("Loopback(%q) is %v", address, !want)
		}
	}
}

func TestNewToken(t *testing.T) {
	t.Parallel()
	if a, b := NewToken(), NewToken(); a == b || len(a) != 32 {
		t.Errorf("tokens %q and %q", a, b)
	}
	s := &Server{}
	if s.isToken("") {
		t.Error("an empty token opens a server without one")
	}
}

package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// NewToken returns a random token of 128 bits.
func NewToken() string {
	var random [16]byte
	rand.Read(random[:]) // never returns an error: without randomness it ends the process
	return hex.EncodeToString(random[:])
}

// tokenCookie is the name of the cookie with the token. The browser sends it to this server only, and
// not with requests that other sites cause.
const tokenCookie = "attune_token"

// Limits of a request.
const (
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 64 << 10
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
)

// policy lets a page load scripts, styles and data from this server only, and lets no site show the
// page in a frame. Inline scripts and styles are not allowed, so that a text that escaped its
// quotation would still do nothing.
const policy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// guard refuses a request that another site caused, or that lacks the token where one is needed,
// before any route sees it.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if reason := s.refusal(r); reason != nil {
			s.writeError(w, r, reason)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}

// refusal is the reason to refuse a request, or nil.
func (s *Server) refusal(r *http.Request) error {
	switch {
	case !s.allowedHost(r.Host):
		return failure(http.StatusForbidden, "the host name %q is not that of this server; open it by its address: %s", clip(r.Host, 80), s.urls)
	case !sameOrigin(r):
		return failure(http.StatusForbidden, "another site caused this request; type the address of this server instead of following a link")
	case s.config.Private && !s.hasToken(r) && !isSignIn(r):
		return failure(http.StatusUnauthorized, "this server is reachable from other machines, so it needs its token: open /?token=TOKEN, or send it as Authorization: Bearer TOKEN")
	}
	return nil
}

// isSignIn reports whether a request brings a token. The route compares it.
func isSignIn(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.Query().Has("token")
}

// allowedHost reports whether a Host header names this server. A name of another site that resolves
// to this machine (DNS rebinding) does not. The port is free, so that a tunnel may change it.
func (s *Server) allowedHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	if slices.Contains(s.hosts, name) {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && s.anyAddress && !address.IsUnspecified() // an address needs no resolver, so nobody can redirect it
}

// hostNames are the names by which a server bound to an address may be called. With any it may be
// called by every address of the machine.
func hostNames(bound string) (names []string, any bool) {
	host, _, err := net.SplitHostPort(bound)
	if err != nil {
		host = bound
	}
	names = []string{"localhost", "127.0.0.1", "::1"}
	address, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		names = append(names, strings.ToLower(host))
	case address.IsUnspecified():
		return names, true
	case !address.IsLoopback():
		names = []string{host}
	default:
		names = append(names, host)
	}
	return names, false
}

// URLs are the addresses that a browser can open. A server that is bound to every address of the
// machine has several; the first is for this machine.
func URLs(bound string) []string {
	host, port, err := net.SplitHostPort(bound)
	if err != nil {
		return []string{"http://" + bound + "/"}
	}
	hosts := []string{host}
	if address, err := netip.ParseAddr(host); err == nil && address.IsUnspecified() {
		hosts = append([]string{"localhost"}, machineAddresses()...)
	}
	var all []string
	for _, h := range hosts {
		all = append(all, "http://"+net.JoinHostPort(h, port)+"/")
	}
	return all
}

// machineAddresses are some addresses by which other machines reach this one.
func machineAddresses() []string {
	const most = 4
	found, _ := net.InterfaceAddrs() // without them there is still localhost
	var all []string
	for _, a := range found {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && len(all) < most {
			all = append(all, n.IP.String())
		}
	}
	return all
}

// Loopback reports whether only processes of this machine can reach an address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// sameOrigin reports whether a page of this server, its user or a program that is no browser caused
// the request. A form of a page without a referrer has the origin null; then the browser's word that
// it is the same origin, which no page can set, must be there.
func sameOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	if len(origins) == 1 && origins[0] == "null" {
		return site == "same-origin"
	}
	origin, err := url.Parse(origins[0])
	return err == nil && len(origins) == 1 && (origin.Scheme == "http" || origin.Scheme == "https") && strings.EqualFold(origin.Host, r.Host)
}

// hasToken reports whether a request has the token, as a header or as the cookie.
func (s *Server) hasToken(r *http.Request) bool {
	if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return s.isToken(given)
	}
	cookie, err := r.Cookie(tokenCookie)
	return err == nil && s.isToken(cookie.Value)
}

// isToken compares hashes, so that the time tells nothing about the token or its length.
func (s *Server) isToken(given string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.config.Token))
	return s.config.Token != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// signIn stores the token in a cookie and continues without it in the address.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request, given, next string) error {
	if !s.isToken(given) {
		return failure(http.StatusUnauthorized, "this is not the token of this server; `attune serve` printed it when it started, or was given it by --token or ATTUNE_TOKEN")
	}
	http.SetCookie(w, &http.Cookie{
		Name: tokenCookie, Value: given, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

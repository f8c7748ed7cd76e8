package ci

import (
	"encoding/json"
	"io"
	"net/url"
	"slices"
)

// Rule is a kind of issue.
type Rule struct {
	ID    string
	Short string // in a few words
	Help  string // what it means and what to do
}

const (
	sarifSchema  = "https://json.schemastore.org/sarif-2.1.0.json"
	sarifVersion = "2.1.0"
	// sourceRoot is the base of relative addresses. Readers take the checkout for it.
	sourceRoot = "%SRCROOT%"
	// fingerprintName has the version of the rules that make a fingerprint.
	fingerprintName = "attuneFinding/v1"
)

type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"` // empty says that nothing was found; absent, that nothing was looked for
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID     string    `json:"id"`
		Name   string    `json:"name"`
		Short  sarifText `json:"shortDescription"`
		Full   sarifText `json:"fullDescription"`
		Help   sarifText `json:"help"`
		Config struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations,omitempty"`
		Related      []sarifLocation   `json:"relatedLocations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		ID       int           `json:"id,omitempty"`
		Message  *sarifText    `json:"message,omitempty"`
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI  string `json:"uri"`
		Base string `json:"uriBaseId,omitempty"` // of a relative address
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
)

// SARIF writes issues as SARIF 2.1.0. rules has all kinds that were looked for; the kind of an issue
// that is not among them gets a rule of its name.
func SARIF(w io.Writer, version string, tree Tree, rules []Rule, issues []Issue) error {
	issues = Merge(issues)
	rules = slices.Clone(rules)
	index := func(id string) int { return slices.IndexFunc(rules, func(r Rule) bool { return r.ID == id }) }
	for _, i := range issues {
		if index(i.Rule) < 0 {
			rules = append(rules, Rule{ID: i.Rule, Short: i.Rule, Help: i.Rule})
		}
	}
	driver := sarifDriver{Name: "attune", Version: version, Rules: []sarifRule{}}
	for _, r := range rules {
		rule := sarifRule{ID: oneLine(r.ID), Name: oneLine(r.ID), Short: sarifText{r.Short}, Full: sarifText{r.Help}, Help: sarifText{r.Help}}
		rule.Config.Level = "error"
		driver.Rules = append(driver.Rules, rule)
	}
	results := []sarifResult{}
	for n, print := range tree.fingerprints(issues) {
		results = append(results, result(issues[n], index(issues[n].Rule), print))
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(sarifLog{sarifSchema, sarifVersion, []sarifRun{{sarifTool{driver}, results}}})
}

func result(i Issue, rule int, fingerprint string) sarifResult {
	text := printable(i.Message)
	if i.Subject != "" {
		text = oneLine(i.Subject) + ": " + text
	}
	r := sarifResult{
		RuleID: oneLine(i.Rule), RuleIndex: rule, Level: string(i.Level), Message: sarifText{text},
		Fingerprints: map[string]string{fingerprintName: fingerprint},
	}
	if i.Level == Notice {
		r.Level = "note"
	}
	if i.Location.File != "" {
		r.Locations = []sarifLocation{location(i.Location)}
	}
	for _, l := range slices.Concat(i.Related, i.Callers) {
		if l.File != "" {
			related := location(l)
			related.ID, related.Message = len(r.Related)+1, &sarifText{printable(l.Message)}
			r.Related = append(r.Related, related)
		}
	}
	return r
}

// location is a place in a file. GitHub needs a line, so it is the first where only the file is known.
// A file outside of the checkout has an absolute address, which has no base (SARIF 2.1.0, 3.4.4).
func location(l Location) sarifLocation {
	address := sarifArtifact{(&url.URL{Path: l.File}).String(), sourceRoot}
	if !l.InTree() {
		address = sarifArtifact{URI: (&url.URL{Scheme: "file", Path: l.File}).String()}
	}
	return sarifLocation{Physical: sarifPhysical{address, sarifRegion{max(l.Line, 1)}}}
}

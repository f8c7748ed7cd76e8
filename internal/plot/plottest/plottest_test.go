package plottest

import "testing"

// The check of overlaps finds them.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	page := func(body string) []byte {
		return []byte(`<svg viewBox="0 0 400 100">` + body + `</svg>`)
	}
	for name, body := range map[string]string{
		"overlap":    `<text class="t" x="10" y="20">stage7</text><text class="t" x="40" y="24">stage6</text>`,
		"from right": `<text class="t" x="10" y="20">stage7</text><text class="t" x="90" y="20" text-anchor="end">stage6 stage6</text>`,
		"beyond":     `<text class="t" x="380" y="20">stage7</text>`,
		"above":      `<text class="t" x="10" y="5">stage7</text>`,
		"small":      `<text class="t" x="10" y="20" font-size="9">stage7</text>`,
		"crossed":    `<text class="t" x="10" y="20">stage7</text><line class="i k" x1="0" y1="15" x2="90" y2="17"/>`,
		"path":       `<text class="t" x="10" y="20">stage7</text><path class="k l7" d="M0 0L90 30"/>`,
		"nan":        `<circle cx="NaN"/>`,
		"broken":     `<text>`,
	} {
		if len(Faults(page(body))) == 0 {
			t.Errorf("%s was not found", name)
		}
	}
	if all := Faults(page(`<text class="t" x="10" y="20">stage7</text><text class="t" x="10" y="40">stage6</text><path class="k l7" d="M0 25L90 26M0 5L0 40"/>`)); len(all) > 0 {
		t.Error(all)
	}
}

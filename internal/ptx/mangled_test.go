package ptx

import "testing"

func TestSourceName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"_ZZ7stencilPKfPfiiE1t":               "t",
		"_ZZ4redfE4part":                      "part",
		"_ZZ6kernelIfLi32EEvPT_iE4tile":       "tile", // a template
		"_ZZN2ns3gpu1kIN2ns1TEEEvT_E5stage":   "stage",
		"_ZZN12_GLOBAL__N_11kIfEEvPT_E3buf_0": "buf", // the second of the name
		"_ZZ1kvE3buf__12_":                    "buf",
		"_ZZ1kvE4aE1t":                        "aE1t",
		"_ZN2ns5tableE":                       "table",
		"_ZN12_GLOBAL__N_15tableE":            "table",
		"_ZL5table":                           "table",
		"_Z5table":                            "table",
		"tile":                                "tile",
		"_ZZ1kvE":                             "_ZZ1kvE",
		"_ZZ1kvEs":                            "_ZZ1kvEs", // a string literal
		"_ZZ1kvE3buf_x":                       "_ZZ1kvE3buf_x",
		"_ZZ1kvE3buf_":                        "_ZZ1kvE3buf_",
		"_ZN3vecIfE5tableE":                   "_ZN3vecIfE5tableE",
		"_ZNE":                                "_ZNE",
		"_ZN2ns":                              "_ZN2ns",
		"_Z":                                  "_Z",
		"_Z9ab":                               "_Z9ab",
		"_Z0":                                 "_Z0",
		"_Z99999999999999999999a":             "_Z99999999999999999999a",
		"_Z2abc":                              "_Z2abc",
		"":                                    "",
	} {
		if got := (&Variable{Name: name}).SourceName(); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
}

package ptx

import (
	"strconv"
	"strings"
)

// SourceName is the name of the variable in CUDA C++: the last name of a mangled one, such as tile of
// _ZZ6kernelPfE4tile. A name that is not mangled, or mangled in another form, stays as it is.
func (v *Variable) SourceName() string {
	rest, mangled := strings.CutPrefix(v.Name, "_Z")
	if !mangled {
		return v.Name
	}
	if name, ok := lastName(rest); ok {
		return name
	}
	return v.Name
}

// lastName finds the last name in the mangled name of a variable, by the rules of the Itanium C++ ABI.
// Of a variable of a function (Z, the function, E, the name) it skips the function.
func lastName(mangled string) (string, bool) {
	switch {
	case strings.HasPrefix(mangled, "Z"):
		for i := range len(mangled) {
			if mangled[i] != 'E' {
				continue
			}
			if name, rest, ok := sourceName(mangled[i+1:]); ok && isDiscriminator(rest) {
				return name, true
			}
		}
		return "", false
	case strings.HasPrefix(mangled, "N"):
		last := ""
		for rest := mangled[1:]; rest != "E"; {
			name, after, ok := sourceName(rest)
			if !ok {
				return "", false
			}
			last, rest = name, after
		}
		return last, last != ""
	}
	name, rest, ok := sourceName(mangled)
	return name, ok && rest == ""
}

// sourceName reads a name with its length before it. L marks one that is internal to its file.
func sourceName(mangled string) (name, rest string, ok bool) {
	mangled = strings.TrimPrefix(mangled, "L")
	digits := len(mangled) - len(strings.TrimLeft(mangled, "0123456789"))
	length, err := strconv.Atoi(mangled[:digits])
	if err != nil || length == 0 || length > len(mangled)-digits {
		return "", "", false
	}
	return mangled[digits : digits+length], mangled[digits+length:], true
}

// isDiscriminator reports whether text is what distinguishes variables of one name in a function:
// nothing, _ and a digit, or __, digits and _.
func isDiscriminator(text string) bool {
	digits := strings.TrimPrefix(text, "_")
	if long, ok := strings.CutPrefix(digits, "_"); ok {
		digits = strings.TrimSuffix(long, "_")
	}
	return text == "" || digits != text && digits != "" && strings.Trim(digits, "0123456789") == ""
}

package spec

import (
	"fmt"
	"strings"
)

// Nearest returns the word among words that is most likely meant by a misspelt word, or "" if none
// is near. Case is ignored. Of two equally near words it returns the first.
func Nearest(word string, words []string) string {
	misspelt := []rune(strings.ToLower(word))
	best, least := "", 0
	for _, candidate := range words {
		other := []rune(strings.ToLower(candidate))
		limit := max(len(misspelt), len(other)) / 3
		if abs(len(misspelt)-len(other)) > limit {
			continue
		}
		if d := distance(misspelt, other); d <= limit && (best == "" || d < least) {
			best, least = candidate, d
		}
	}
	if best != "" || len(misspelt) < 3 {
		return best
	}
	// A prefix of a long name is far from it in edits, but clearly means it.
	for _, candidate := range words {
		if strings.HasPrefix(strings.ToLower(candidate), string(misspelt)) {
			return candidate
		}
	}
	return ""
}

// hint ends the message about an unknown word with the nearest word, or with all words if none is
// near.
func hint(word string, words []string) string {
	if near := Nearest(word, words); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	if len(words) == 0 {
		return "; there are none"
	}
	return "; there are " + strings.Join(words, ", ")
}

// distance is the restricted Damerau-Levenshtein distance: the number of insertions, deletions,
// replacements and swaps of neighbouring letters that turn a into b.
func distance(a, b []rune) int {
	// The last three rows of the dynamic-programming table.
	above, row := make([]int, len(b)+1), make([]int, len(b)+1)
	next := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		next[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], above[j-1]+1)
			}
		}
		above, row, next = row, next, above
	}
	return row[len(b)]
}

func abs(n int) int {
	return max(n, -n)
}

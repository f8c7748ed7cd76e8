package spec

import (
	"fmt"
	"strings"
)

// Nearest returns the one of words that was most likely meant by word, or "" if none is near. Case does not matter.
// Of two that are equally near the first is returned.
func Nearest(word string, words []string) string {
	meant := []rune(strings.ToLower(word))
	best, least := "", 0
	for _, candidate := range words {
		other := []rune(strings.ToLower(candidate))
		limit := max(len(meant), len(other)) / 3
		if abs(len(meant)-len(other)) > limit {
			continue
		}
		if d := distance(meant, other); d <= limit && (best == "" || d < least) {
			best, least = candidate, d
		}
	}
	if best != "" || len(meant) < 3 {
		return best
	}
	// The beginning of a long name is far from it in edits, and still means it.
	for _, candidate := range words {
		if strings.HasPrefix(strings.ToLower(candidate), string(meant)) {
			return candidate
		}
	}
	return ""
}

// hint ends the message about an unknown word: with the word that was meant or, failing that, with all there are.
func hint(word string, words []string) string {
	if near := Nearest(word, words); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	if len(words) == 0 {
		return "; there are none"
	}
	return "; there are " + strings.Join(words, ", ")
}

// distance counts the letters to insert, delete, replace or swap with their neighbour to turn a into b.
func distance(a, b []rune) int {
	// Three rows of the usual table: the one in hand and the two above it.
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

package run

import "strings"

// ShellWord quotes a word of a command for a shell, if it needs that. A record may have any name, and a
// printed command is pasted.
func ShellWord(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%"
	for _, r := range word {
		if !strings.ContainsRune(plain, r) {
			return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return word
}

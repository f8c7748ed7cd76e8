package propose

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Command splits the text of a command into words as a shell does, with quotes and backslashes and
// without expansions, and finds its program.
func Command(text string) ([]string, error) {
	words, err := split(text)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("it names no program; write for example --proposer \"python3 propose.py\"")
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return nil, fmt.Errorf("there is no program %q", words[0])
	}
	words[0] = path
	return words, nil
}

// split splits text at blanks outside of quotes.
func split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		switch {
		case r == '\\' && quote != '\'':
			if i++; i == len(runes) {
				return nil, errors.New("it ends with a backslash")
			}
			if quote == '"' && !strings.ContainsRune(`\"$`+"`", runes[i]) {
				word.WriteRune('\\') // a shell keeps it there
			}
			inWord = true
			word.WriteRune(runes[i])
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case quote == 0 && strings.ContainsRune(" \t\n\r", r):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			inWord = true
			word.WriteRune(r)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c is not closed", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

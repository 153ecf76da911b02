package status

import (
	"regexp"
	"strings"
)

// masks find what looks like a secret by itself. Group 1, if there is one, is
// kept, and so is group 2.
var masks = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\z)`),
	regexp.MustCompile(`(?s)\A[A-Za-z0-9+/=\s]*-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----`), // its begin was cut off
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),          // JWT
	regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`),
	regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}`),
	regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,})`),
	regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/]+(@)`),
	regexp.MustCompile(`(?i)(\bhttps?://)[a-z0-9_-]{16,}(@)`), // a token in place of a user
	regexp.MustCompile(`(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`(?i)([?&](?:sig|x-amz-(?:signature|credential|security-token))=)[^\s&"']+`),
}

// names of secrets, by their ends: tokens and token_count are none.
const names = `(?:password|passwd|passphrase|secret|token|(?:api|access|account|private|secret)[_-]?key|credentials?|authorization)`

// assigned finds values of names that end like those of secrets: the name, what
// stands between, and the value, quoted or up to the next space.
var assigned = regexp.MustCompile(
	`(?i)([a-z0-9_.-]*` + names + `)((?:\\?["'])?\s*(?::=|=>|[:=])\s*)` +
		`((?:(?:basic|bearer|digest|token)[ \t]+)?)(\\"[^"\n]*"?|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|[^\s"'&;]+)`)

// flags finds the values of arguments, in a shell's line or in a list.
var flags = regexp.MustCompile(`(?i)(--?[a-z0-9_-]*` + names + `)(["']?,?\s+["']?)()([^\s"',*-][^\s"',]*)`)

// vocabulary are names of tokens that language models have.
var vocabulary = regexp.MustCompile(`(?i)(?:^|[_.-])(?:bos|eos|pad|unk|sep|cls|mask|special|image|next|last|first|start|end|stop|input|output|num|max|min|per|n)[_-]?token$`)

var (
	// nothing is a value that says nothing: masked before, or none.
	nothing = regexp.MustCompile(`(?i)^["'\\]*(?:\*+|none|null|nil|true|false|basic|bearer|digest|token)?["'\\,)\]}]*$`)
	number  = regexp.MustCompile(`^["']?[-+]?[0-9.][0-9._]{0,11}(?:[eE][-+]?[0-9]+)?[a-zA-Z/%]{0,4}["',)\]}]*$`)
)

// Mask replaces what looks like a secret by ***. It errs on the side of masking,
// except for what every training logs: tokens/s=1200, eos_token: </s>.
func Mask(text string) string {
	for _, m := range masks {
		if m.NumSubexp() == 0 {
			text = m.ReplaceAllString(text, "***")
		} else {
			text = m.ReplaceAllString(text, "${1}***${2}")
		}
	}
	for _, m := range []*regexp.Regexp{assigned, flags} {
		text = m.ReplaceAllStringFunc(text, func(found string) string { return maskValue(m.FindStringSubmatch(found)) })
	}
	return text
}

// maskValue masks the value of a name. A password may be a number; a token is none.
func maskValue(parts []string) string {
	all, name, between, scheme, value := parts[0], parts[1], parts[2], parts[3], parts[4]
	token := strings.HasSuffix(strings.ToLower(name), "token")
	if nothing.MatchString(value) || token && (number.MatchString(value) || vocabulary.MatchString(name)) {
		return all
	}
	quote := value[:len(value)-len(strings.TrimLeft(value, `\"'`))]
	end := ""
	if quote != "" && strings.HasSuffix(value, quote) {
		end = quote
	}
	return name + between + scheme + quote + "***" + end
}

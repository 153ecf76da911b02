package status

import "regexp"

// masks find what looks like a secret. Group 1, if there is one, is kept.
var masks = []*regexp.Regexp{
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), // JWT
	regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`),
	regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,})`),
	regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@`),
	regexp.MustCompile(`(?i)(\bauthorization["']?\s*[:=]\s*["']?(?:basic|bearer|token)?\s+)[^\s"',;*][^\s"',;]*`),
	regexp.MustCompile(`(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)[a-z0-9_.-]*["']?\s*[:=]\s*["']?)[^\s"',;&*][^\s"',;&]*`),
}

// Mask replaces what looks like a secret by ***.
func Mask(text string) string {
	for _, m := range masks {
		if m.NumSubexp() == 0 {
			text = m.ReplaceAllString(text, "***")
		} else {
			text = m.ReplaceAllString(text, "${1}***")
		}
	}
	return text
}

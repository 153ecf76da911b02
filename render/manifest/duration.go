package manifest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Duration is a span of time as files write it: 90s, 30m, 12h, 1h30m, 2d. A
// day is 24 hours.
type Duration time.Duration

var days = regexp.MustCompile(`^(\d{1,5})d(.*)$`)

// UnmarshalJSON reads a duration; it is never negative.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		return fmt.Errorf("want a duration like 90s, 30m, 12h or 2d, not %s: give it a unit", data)
	}
	wrong := fmt.Errorf("want a duration like 90s, 30m, 12h or 2d, not the text %q", short(text))
	var whole time.Duration
	rest := text
	if m := days.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		whole, rest = time.Duration(n)*24*time.Hour, m[2]
	}
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 {
			return wrong
		}
		whole += more
	} else if text == "" {
		return wrong
	}
	if whole < 0 {
		return wrong
	}
	*d = Duration(whole)
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

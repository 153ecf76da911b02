package behaviour

// gaps are rules that do not hold yet, with what such a row comes to instead.
// A row whose rule holds again has to leave the list.
var gaps = map[string]string{
	"A.13: down and up, it is a new task": "Running; worker-2 retry",
	"A.13: also one that had succeeded":   "Running; worker-2 Succeeded",
}

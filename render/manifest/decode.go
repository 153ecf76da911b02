package manifest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Options say how strictly a part of an object is read.
type Options struct {
	// Lenient makes an unknown field a warning: upstream ignored it.
	Lenient bool
	// Fold takes keys in another case, with a warning: upstream did so.
	Fold bool
	// Aliases are other spellings of keys that upstream took at some time.
	Aliases map[string]Alias
}

// Alias is what another spelling of a key stands for, and what to say of it.
type Alias struct {
	Field string
	Note  string // "the spelling used before August 2017"; "" says nothing
	// Wrong makes it an error; it is read nevertheless, to find what else is wrong.
	Wrong bool
}

// Written is the path of a field as the file spells its key.
func (o *Object) Written(path, field string, opts Options) string {
	var content any = o.built
	for _, s := range steps(path) {
		content, _ = below(content, s)
	}
	m, _ := content.(map[string]any)
	if _, ok := m[field]; ok {
		return Join(path, field)
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if opts.Aliases[k].Field == field || opts.Fold && strings.EqualFold(k, field) {
			return Join(path, k)
		}
	}
	return Join(path, field)
}

// Decode reads the part of the object at path into a pointer to a struct. It
// reports every unknown field and wrong type at once, in the words of the
// file's author, and leaves out what has the wrong type. Null is absent.
func (o *Object) Decode(path string, into any, opts Options) {
	var content any = o.built
	for _, s := range steps(path) {
		next, ok := below(content, s)
		if !ok || next == nil {
			return
		}
		content = next
	}
	d := decoder{o: o, opts: opts, lookups: maxLookups, fields: map[reflect.Type]map[string]reflect.Type{}}
	good, ok := d.value(path, content, reflect.TypeOf(into).Elem())
	if !ok {
		return
	}
	text, err := json.Marshal(good)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		o.Errorf(path, "cannot be read: %v", err)
	}
}

// Keys reports keys of the object's top level that no object of its kind has.
func (o *Object) Keys(opts Options, known ...string) {
	known = append(known, "apiVersion", "kind", "metadata")
	d := decoder{o: o, opts: opts}
	for _, k := range slices.Sorted(maps.Keys(o.built)) {
		if !slices.Contains(known, k) && o.built[k] != nil {
			d.unknown("", k, known, nil, nil)
		}
	}
}

// decoder compares a built value with the Go type that it is for, and returns
// a copy that json.Unmarshal takes without an error.
type decoder struct {
	o    *Object
	opts Options
	// lookups into the source that are left: each costs as much as the maps
	// above the value are long.
	lookups int
	fields  map[reflect.Type]map[string]reflect.Type
}

const maxLookups = 1000

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	intOrStringType = reflect.TypeFor[intstr.IntOrString]()
	timeType        = reflect.TypeFor[metav1.Time]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// value checks one value. ok is false when it is absent or wrong, which has been reported.
func (d *decoder) value(path string, v any, t reflect.Type) (good any, ok bool) {
	if v == nil {
		return nil, false
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return d.value(path, v, t.Elem())
	case t == quantityType:
		return d.quantity(path, v)
	case t == intOrStringType:
		if n, ok := whole(v); ok {
			return n, true
		}
		return d.text(path, v, "a number or text")
	case t == timeType:
		s, ok := v.(string)
		if _, err := time.Parse(time.RFC3339, s); !ok || err != nil {
			return d.wrong(path, v, "a time like 2006-01-02T15:04:05Z")
		}
		return s, true
	case reflect.PointerTo(t).Implements(unmarshalerType), reflect.PointerTo(t).Implements(textType):
		return d.own(path, v, t)
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.object(path, v, t)
	case reflect.Map:
		return d.mapping(path, v, t.Elem())
	case reflect.Slice:
		return d.list(path, v, t.Elem())
	case reflect.String:
		return d.text(path, v, "text")
	case reflect.Bool:
		return d.boolean(path, v)
	case reflect.Interface:
		return v, true
	}
	return d.number(path, v, t)
}

func (d *decoder) wrong(path string, v any, want string) (any, bool) {
	if d.o.full() {
		return nil, false
	}
	hint := ""
	if _, isText := v.(string); !isText && (want == "text" || want == "a number or text") {
		if hint = quoteHint(d.o.node(path)); hint == "" {
			hint = `; put quotes around it`
		}
		switch v.(type) {
		case map[string]any, []any:
			hint = ""
		}
	}
	d.o.wrong(path, "want %s, not %s%s", want, describe(v), hint)
	return nil, false
}

// own lets a type of ours or of Kubernetes read itself.
func (d *decoder) own(path string, v any, t reflect.Type) (any, bool) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err != nil {
		d.o.wrong(path, "%v", err)
		return nil, false
	}
	return v, true
}

func (d *decoder) quantity(path string, v any) (any, bool) {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case bool, map[string]any, []any:
		return d.wrong(path, v, "a quantity like 4, 500m or 16Gi")
	default:
		text = fmt.Sprint(v)
	}
	if _, err := resource.ParseQuantity(text); err != nil {
		return d.wrong(path, v, "a quantity like 4, 500m or 16Gi")
	}
	return text, true
}

func (d *decoder) text(path string, v any, want string) (any, bool) {
	s, ok := v.(string)
	if !ok {
		return d.wrong(path, v, want)
	}
	if isOldBool(s) && d.lookups > 0 {
		d.lookups--
		if n := d.o.node(path); n != nil && n.Value == s && isPlain(n) {
			d.o.wrong(path, "want %s%s", want, quoteHint(n))
			return nil, false
		}
	}
	return s, true
}

func (d *decoder) boolean(path string, v any) (any, bool) {
	if s, ok := v.(string); ok && isOldBool(s) && d.lookups > 0 {
		d.lookups--
		if n := d.o.node(path); n != nil && isPlain(n) {
			return oldBool(s), true // kubectl reads it so
		}
	}
	if _, ok := v.(bool); !ok {
		return d.wrong(path, v, "true or false")
	}
	return v, true
}

func (d *decoder) number(path string, v any, t reflect.Type) (any, bool) {
	if k := t.Kind(); k == reflect.Float32 || k == reflect.Float64 {
		switch v.(type) {
		case bool, string, map[string]any, []any:
			return d.wrong(path, v, "a number")
		}
		return v, true
	}
	n, ok := whole(v)
	if !ok {
		want := "a number"
		if _, isFloat := v.(float64); isFloat {
			want = "a whole number"
		}
		return d.wrong(path, v, want)
	}
	x := reflect.New(t).Elem()
	switch {
	case x.CanInt() && x.OverflowInt(n), x.CanUint() && (n < 0 || x.OverflowUint(uint64(n))):
		return d.wrong(path, v, "a number that fits into "+t.Kind().String())
	}
	return n, true
}

// whole reads the number types that YAML and JSON decoders leave.
func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= 1<<62
	case float64:
		return int64(v), v == float64(int64(v)) && v > -1e15 && v < 1e15
	case json.Number:
		n, err := v.Int64()
		return n, err == nil
	}
	return 0, false
}

func (d *decoder) list(path string, v any, elem reflect.Type) (any, bool) {
	if s, ok := v.(string); ok && elem.Kind() == reflect.Uint8 {
		return s, true // base64, which json reads
	}
	in, ok := v.([]any)
	if !ok {
		return d.wrong(path, v, "a list")
	}
	out := make([]any, 0, len(in))
	for i, x := range in {
		if x == nil && elem.Kind() != reflect.Pointer {
			d.o.wrong(Item(path, i), "an item of the list is empty")
		}
		good, ok := d.value(Item(path, i), x, elem)
		if !ok {
			good = nil // keeps its place, so that later items keep their index
		}
		out = append(out, good)
	}
	return out, true
}

func (d *decoder) mapping(path string, v any, elem reflect.Type) (any, bool) {
	in, ok := v.(map[string]any)
	if !ok {
		return d.wrong(path, v, "a map")
	}
	out := make(map[string]any, len(in))
	for _, k := range slices.Sorted(maps.Keys(in)) {
		if good, ok := d.value(Join(path, k), in[k], elem); ok {
			out[k] = good
		}
	}
	return out, true
}

func (d *decoder) object(path string, v any, t reflect.Type) (any, bool) {
	in, ok := v.(map[string]any)
	if !ok {
		return d.wrong(path, v, "a map")
	}
	known := d.known(t)
	out := make(map[string]any, len(in))
	from := make(map[string]string, len(in)) // which key of the file gave a field
	for _, k := range slices.Sorted(maps.Keys(in)) {
		if in[k] == nil {
			continue
		}
		at := Join(path, k)
		field, ok := d.field(at, k, known)
		if !ok {
			d.unknown(path, k, slices.Sorted(maps.Keys(known)), in, t)
			continue
		}
		if other, twice := from[field]; twice {
			d.o.Errorf(at, "%q and %q both mean %q: keep one of them", other, k, field)
			continue
		}
		from[field] = k
		if good, ok := d.value(at, in[k], known[field]); ok {
			out[field] = good
		}
	}
	return out, true
}

// field is the field that a key means.
func (d *decoder) field(at, key string, known map[string]reflect.Type) (string, bool) {
	if _, ok := known[key]; ok {
		return key, true
	}
	if a, ok := d.opts.Aliases[key]; ok && known[a.Field] != nil {
		switch {
		case a.Wrong:
			d.o.Errorf(at, "unknown field; did you mean %q?", a.Field)
		case a.Note != "":
			d.o.Warnf(at, "%s; read as %s", a.Note, a.Field)
		}
		return a.Field, true
	}
	if d.opts.Fold {
		for f := range known { // no two of them differ by case alone
			if strings.EqualFold(f, key) {
				d.o.Warnf(at, "written %q; read as %q", key, f)
				return f, true
			}
		}
	}
	return "", false
}

// known are the fields of a struct by their keys, those of inlined structs included.
func (d *decoder) known(t reflect.Type) map[string]reflect.Type {
	if known, ok := d.fields[t]; ok {
		return known
	}
	known := make(map[string]reflect.Type, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (f.Anonymous || opts == "inline"):
			maps.Copy(known, d.known(f.Type))
		case name != "" && f.IsExported():
			known[name] = f.Type
		case f.IsExported():
			known[f.Name] = f.Type
		}
	}
	d.fields[t] = known
	return known
}

package status

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		"password=hunter2":                                                                "password=***",
		"password=123456":                                                                 "password=***",
		"password = hunter2, user = x":                                                    "password = *** user = x",
		`password="my own words" next`:                                                    `password="***" next`,
		`'password': 'my own', 'lr': 1`:                                                   `'password': '***', 'lr': 1`,
		`{\"password\": \"a b\", \"lr\": 1}`:                                              `{\"password\": \"***\", \"lr\": 1}`,
		`"api_key": "abcdef"`:                                                             `"api_key": "***"`,
		"AWS_SECRET_ACCESS_KEY=abc/def+g":                                                 "AWS_SECRET_ACCESS_KEY=***",
		"aws_secret_access_key = abc/def+g":                                               "aws_secret_access_key = ***",
		"PGPASSWORD=x psql":                                                               "PGPASSWORD=*** psql",
		"WANDB_API_KEY=0123456789abcdef0123456789":                                        "WANDB_API_KEY=***",
		"AccountName=a;AccountKey=abc/+==;Endpoint=x":                                     "AccountName=a;AccountKey=***;Endpoint=x",
		"HF_TOKEN: hf_abc":                                                                "HF_TOKEN: ***",
		"key AKIAIOSFODNN7EXAMPLE used":                                                   "key *** used",
		"Authorization: Bearer abcdefghijkl":                                              "Authorization: Bearer ***",
		"Authorization: Basic dXNlcjpw":                                                   "Authorization: Basic ***",
		`{"Authorization": "token abc"}`:                                                  `{"Authorization": "***"}`,
		"curl -H 'authorization: bearer abc.def-ghi'":                                     "curl -H 'authorization: bearer ***'",
		"git clone https://user:p%40ss@example.com/x":                                     "git clone https://***@example.com/x",
		"git clone https://0123456789abcdef01@git.ex/x":                                   "git clone https://***@git.ex/x",
		"postgres://u:p@ss@db/x":                                                          "postgres://***@db/x",
		"redis://:pw@cache:6379":                                                          "redis://***@cache:6379",
		"GET /x?access_token=abc&page=2":                                                  "GET /x?access_token=***&page=2",
		"https://s3/x?X-Amz-Signature=abc&a=1":                                            "https://s3/x?X-Amz-Signature=***&a=1",
		"https://b.core.windows.net/x?sv=1&sig=a%2Bb":                                     "https://b.core.windows.net/x?sv=1&sig=***",
		"eyJhbGciOiJI.eyJzdWIiOiIx.abcdef rest":                                           "*** rest",
		"-----BEGIN RSA PRIVATE KEY-----\nMII\nabc":                                       "***",
		"MIIabc\nd+/=\n-----END PRIVATE KEY-----\nafter":                                  "***\nafter",
		"a\n-----BEGIN PRIVATE KEY-----\nM\n-----END PRIVATE KEY-----\nb":                 "a\n***\nb",
		"-----BEGIN PGP PRIVATE KEY BLOCK-----\nM\n-----END PGP PRIVATE KEY BLOCK-----\n": "***\n",
		"train.py --token abcdef --lr 0.1":                                                "train.py --token *** --lr 0.1",
		"--api_key abc":                                                                   "--api_key ***",
		`["train", "--password", "abc", "--lr"]`:                                          `["train", "--password", "***", "--lr"]`,
		"ghp_abcdefghijklmnopqrstuvwx":                                                    "***",
	} {
		assert.Equal(t, want, Mask(in), in)
		assert.Equal(t, want, Mask(Mask(in)), "twice: %s", in)
	}
}

func TestWhatIsNotMasked(t *testing.T) {
	for _, in := range []string{
		"tokens/s=1200", "tokens_per_second: 3", "token_count=5", "token_count=5, loss=0.3", "tokens: 4096", "ms/token: 12.5ms", "ms/token=3,",
		"eos_token: 2", "eos_token: </s>", `"pad_token": "<pad>"`, "next_token = the", "max_token: many", "--eos-token </s>", "tokenizer=bert", "tokenizer: AutoTokenizer",
		"loss=0.25 acc=0.9 lr=1e-4", "step 100/1000: loss=0.3",
		"sha256:4b825dc642cb6eb9a060e54bf8d69288fbee4904aaaaaaaaaaaaaaaaaaaaaaaa", "commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
		"ghcr.io/acme/bert@sha256:4b825dc642cb6eb9a060e54bf8d69288fbee4904aaaaaaaaaaaaaaaaaaaaaaaa",
		"epoch 3: 12:30:45 https://a.b/c", "https://a.b:8443/c?x=1", "ssh://git@example.com/x", "git@example.com:team/x", "s3://bucket/key", "mail joe@example.com",
		"token=None", "password: null", "password:", `password=""`, "the token was refused", "secret/nlp/hf not found", "-----BEGIN CERTIFICATE-----\nMII",
		"worker-0.nlp.svc:2222", "key=value", "monkey=banana", "sort_key=id", `File "train.py", line 3, in <module>`, "ssh-ed25519 AAAAC3Nz",
	} {
		assert.Equal(t, in, Mask(in))
	}
}

func TestMaskingTwiceIsMaskingOnce(t *testing.T) {
	word := rapid.SampledFrom([]string{"password", "token", "--token", "=", ":", " ", ", ", "\"", "'", "\\\"", "abc", "12", "Bearer ", "https://", "@", "***", "\n", "&", ";", "eos_"})
	rapid.Check(t, func(t *rapid.T) {
		text := ""
		for _, w := range rapid.SliceOfN(word, 0, 12).Draw(t, "words") {
			text += w
		}
		once := Mask(text)
		if Mask(once) != once {
			t.Fatalf("%q -> %q -> %q", text, once, Mask(once))
		}
	})
}

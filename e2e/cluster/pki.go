package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one cluster. Its files lie in a folder:
// ca.crt, ca.key, and NAME.crt and NAME.key of what it has issued.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, cert: &x509.Certificate{
		Subject:               pkix.Name{CommonName: "trainyard-test-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}}
	cert, err := a.sign(a.cert, key.Public())
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(cert)
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, err
	}
	return a, a.write("ca", cert, key)
}

// sign fills in what is the same for all certificates.
func (a *authority) sign(cert *x509.Certificate, key crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	cert.SerialNumber, cert.NotBefore, cert.NotAfter = serial, now.Add(-time.Hour), now.Add(30*24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", cert.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// pem is the certificate that all others are signed by.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// client issues a certificate that says who a client is: a user and its groups.
func (a *authority) client(user string, groups ...string) (cert, key []byte, err error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server issues one for what listens on some addresses, and has some names.
func (a *authority) server(cn string, addresses []net.IP, names ...string) (cert, key []byte, err error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: cn},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: addresses,
		DNSNames:    names,
	})
}

func (a *authority) issue(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if cert, err = a.sign(template, private.Public()); err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(private)
	return cert, key, err
}

func (a *authority) write(name string, cert []byte, private *ecdsa.PrivateKey) error {
	key, err := encodeKey(private)
	if err != nil {
		return err
	}
	return a.save(name, cert, key)
}

func (a *authority) save(name string, cert, key []byte) error {
	if err := os.WriteFile(filepath.Join(a.dir, name+".crt"), cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, name+".key"), key, 0o600)
}

// accountKey makes the pair of keys that sign and check the tokens of service accounts.
func (a *authority) accountKey() error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return err
	}
	key, err := encodeKey(private)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(a.dir, "accounts.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, "accounts.key"), key, 0o600)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// adminTLS is what a client of ours needs to reach all parts.
func (a *authority) adminTLS() (*x509.CertPool, tls.Certificate, error) {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	cert, err := tls.LoadX509KeyPair(filepath.Join(a.dir, "admin.crt"), filepath.Join(a.dir, "admin.key"))
	return pool, cert, err
}

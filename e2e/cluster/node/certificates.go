package node

import (
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
)

// authority is the control plane's, in PEM.
type authority struct{ certificate, key []byte }

func readAuthority(dir string) (a authority, err error) {
	if a.certificate, err = os.ReadFile(filepath.Join(dir, "ca.crt")); err != nil {
		return a, err
	}
	a.key, err = os.ReadFile(filepath.Join(dir, "ca.key"))
	return a, err
}

// issue signs a certificate with a new key, valid for as long as the CA, and
// writes both to one file. With an address it is a server's, else a client's.
func (a authority) issue(file string, subject pkix.Name, address string) error {
	ca, err := tls.X509KeyPair(a.certificate, a.key)
	if err != nil {
		return fmt.Errorf("read the CA of the control plane: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("make certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: ca.Leaf.NotBefore, NotAfter: ca.Leaf.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if address != "" {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.IPAddresses, template.DNSNames = []net.IP{net.ParseIP(address)}, []string{subject.CommonName}
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return fmt.Errorf("make certificate: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	return os.WriteFile(file, text, 0o600)
}

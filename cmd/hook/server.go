package hook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of every connection.
const (
	headerTimeout   = 5 * time.Second
	readTimeout     = 30 * time.Second // headers and body: 26 MiB at 1 MiB/s
	writeTimeout    = 60 * time.Second
	idleTimeout     = 60 * time.Second
	shutdownTimeout = 5 * time.Second
	maxHeader       = 32 << 10
	maxConnections  = 256
)

// Serve answers on the listener until the context ends, then finishes the
// requests that it has, for a few seconds at most. It closes the listener.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	return serve(ctx, listener, &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	})
}

func serve(ctx context.Context, listener net.Listener, server *http.Server) error {
	done := make(chan error, 1)
	go func() { done <- server.Serve(netutil.LimitListener(listener, maxConnections)) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // whoever is still at it has had its time
	}
	<-done
	if err != nil {
		return fmt.Errorf("stop serving %s: %w", listener.Addr(), err)
	}
	return nil
}

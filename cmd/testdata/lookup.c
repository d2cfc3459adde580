// Prints the addresses that the C library's own resolver finds for each argument, or its error.
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *list = NULL;
		int err = getaddrinfo(argv[i], NULL, &hints, &list);
		char text[INET6_ADDRSTRLEN];

		printf("%s", argv[i]);
		if (err)
			printf(" %s", gai_strerror(err));
		for (struct addrinfo *a = list; a; a = a->ai_next) {
			void *addr = a->ai_family == AF_INET
				? (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr
				: (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
			printf(" %s", inet_ntop(a->ai_family, addr, text, sizeof text));
		}
		printf("\n");
	}
	return 0;
}

/* resolve prints the addresses of its arguments as musl's resolver finds them. Without
   arguments it waits, as the only program of a container does. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int status = 0;

	if (argc == 1)
		for (;;)
			pause();

	for (int i = 1; i < argc; i++) {
		struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list, *a;
		int error = getaddrinfo(argv[i], NULL, &hints, &list);

		if (error) {
			fprintf(stderr, "%s: %s\n", argv[i], gai_strerror(error));
			status = 1;
			continue;
		}
		for (a = list; a; a = a->ai_next) {
			char text[NI_MAXHOST];

			if (!getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST))
				printf("%s %s\n", argv[i], text);
		}
		freeaddrinfo(list);
	}
	return status;
}

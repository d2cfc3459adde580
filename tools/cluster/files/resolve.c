/* resolve prints the addresses of its arguments as the resolver of the C library finds them. With
   -load it looks them up in turn, some ten times a second, and prints the counts of the results
   every second, in the form of the program load. Without arguments it waits, as the only program
   of a container does. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int look_up(const char *name, struct addrinfo **list)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };

	return getaddrinfo(name, NULL, &hints, list);
}

static void load(int count, char **names)
{
	unsigned long answered = 0, failed = 0, lost = 0;
	time_t printed = 0;

	for (int i = 0;; i = (i + 1) % count) {
		struct addrinfo *list;
		int error = look_up(names[i], &list);

		if (!error) {
			answered++;
			freeaddrinfo(list);
		} else if (error == EAI_AGAIN) {
			lost++;
		} else {
			failed++;
		}
		if (time(NULL) != printed) {
			printf("{\"Sent\":%lu,\"Answered\":%lu,\"Failed\":%lu,\"Lost\":%lu}\n",
			       answered + failed + lost, answered, failed, lost);
			fflush(stdout);
			printed = time(NULL);
		}
		usleep(100000);
	}
}

int main(int argc, char **argv)
{
	int status = 0;

	if (argc == 1)
		for (;;)
			pause();
	if (argc > 2 && !strcmp(argv[1], "-load"))
		load(argc - 2, argv + 2);

	for (int i = 1; i < argc; i++) {
		struct addrinfo *list, *a;
		int error = look_up(argv[i], &list);

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

/* A metal rod, 0.5 m long, is heated at one end and loses heat along its side to the air.

       ./rod INPUT OUTPUT

   INPUT has a line for each parameter, as "diffusivity = 9.7e-5" (m²/s), "loss = 2e-3" (1/s) and
   "heating = 900" (K/m, the slope at the heated end). OUTPUT gets the temperatures above that of the
   air, in K, 0.05 m and 0.25 m from the heated end, every 20 seconds. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELLS 50
#define LENGTH 0.5
#define SECONDS 600
#define EVERY 20

static double parameter(const char *file, const char *wanted)
{
    char name[64];
    double value;
    FILE *input = fopen(file, "r");
    if (!input) { fprintf(stderr, "cannot read %s\n", file); exit(2); }
    while (fscanf(input, " %63[^= ] = %lf", name, &value) == 2)
        if (!strcmp(name, wanted)) { fclose(input); return value; }
    fprintf(stderr, "%s has no %s\n", file, wanted);
    exit(2);
}

int main(int count, char **arguments)
{
    if (count != 3) { fprintf(stderr, "usage: rod INPUT OUTPUT\n"); return 2; }
    double diffusivity = parameter(arguments[1], "diffusivity");
    double loss = parameter(arguments[1], "loss");
    double heating = parameter(arguments[1], "heating");
    double width = LENGTH / CELLS, now[CELLS] = {0}, next[CELLS];
    double fastest = 4 * diffusivity / (width * width) + loss;  /* 1/s: longer steps are not stable */
    if (!(fastest < 100)) { fprintf(stderr, "too fast for this grid\n"); return 4; }
    int steps = EVERY * (1 + (int)fastest);
    double step = (double)EVERY / steps;
    FILE *output = fopen(arguments[2], "w");
    if (!output) { fprintf(stderr, "cannot write %s\n", arguments[2]); return 3; }
    fprintf(output, "time,near,far\n");
    for (int time = EVERY; time <= SECONDS; time += EVERY) {
        for (int i = 0; i < steps; i++) {
            for (int j = 0; j < CELLS; j++) {
                double left = j ? (now[j] - now[j - 1]) / width : -heating;
                double right = j < CELLS - 1 ? (now[j + 1] - now[j]) / width : 0;
                next[j] = now[j] + step * (diffusivity * (right - left) / width - loss * now[j]);
            }
            memcpy(now, next, sizeof now);
        }
        fprintf(output, "%d,%.17g,%.17g\n", time, now[5], now[25]);
    }
    return fclose(output) ? 3 : 0;
}

/** Icons: 16 by 16, one stroke, the colour of the text. */
import type { ComponentChildren } from "preact";

function icon(children: ComponentChildren) {
  return function Icon({ size = 16 }: { size?: number }) {
    return (
      <svg
        width={size}
        height={size}
        viewBox="0 0 16 16"
        fill="none"
        stroke="currentColor"
        stroke-width="1.5"
        stroke-linecap="round"
        stroke-linejoin="round"
        aria-hidden="true"
        focusable="false"
      >
        {children}
      </svg>
    );
  };
}

export const Cross = icon(<path d="m4 4 8 8M12 4l-8 8" />);
export const Magnifier = icon(<><circle cx="7" cy="7" r="4.25" /><path d="m10.5 10.5 3 3" /></>);
export const Down = icon(<path d="m4 6 4 4 4-4" />);
export const Up = icon(<path d="m4 10 4-4 4 4" />);
export const Right = icon(<path d="m6 4 4 4-4 4" />);
export const Menu = icon(<path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11" />);
export const Sun = icon(<><circle cx="8" cy="8" r="2.75" /><path d="M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7" /></>);
export const Moon = icon(<path d="M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8Z" />);
export const Pin = icon(<path d="M6 2h4l-.5 4 2.5 2.5H4L6.5 6 6 2ZM8 8.5V14" />);
export const Star = icon(<path d="m8 2 1.800 3.800 4.200.5-3.100 2.900.8 4.100L8 11.300l-3.700 2 .8-4.100L2 6.300l4.200-.5L8 2Z" />);
export const Filter = icon(<path d="M2.5 3.5h11L9.5 8.5v4l-3-1.5v-2.500z" />);
export const Dots = icon(<><circle cx="8" cy="3" r=".6" /><circle cx="8" cy="8" r=".6" /><circle cx="8" cy="13" r=".6" /></>);
export const Person = icon(<><circle cx="8" cy="5.5" r="2.5" /><path d="M3 13.5c.6-2.6 2.500-4 5-4s4.400 1.400 5 4" /></>);
export const Globe = icon(<><circle cx="8" cy="8" r="5.75" /><path d="M2.25 8h11.5M8 2.25c3.300 3.500 3.300 8 0 11.500M8 2.250c-3.300 3.500-3.300 8 0 11.500" /></>);
export const Check = icon(<path d="m3.500 8.500 3 3 6-7" />);
export const External = icon(<path d="M6 3.500H3.500v9h9V10M9 3h4v4M13 3 7.500 8.500" />);

export function Logo({ size = 20 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" fill="#0d6b6b" />
      <circle cx="16" cy="16" r="7.5" fill="none" stroke="#fff" stroke-width="3" />
      <path d="M3 16h8M21 16h8" stroke="#9fe0d8" stroke-width="3" stroke-linecap="round" />
    </svg>
  );
}
